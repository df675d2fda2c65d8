"""Skill families: one file each, a generator of tasks over kinds, colours and relations."""
