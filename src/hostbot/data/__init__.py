"""Datasets: reading, writing, cleaning, normalising, augmenting and pairing episodes."""
