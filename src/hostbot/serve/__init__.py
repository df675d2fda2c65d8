"""A policy over websockets: openpi's protocol, and what it lacks."""
