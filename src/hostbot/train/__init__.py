"""Training: one loop for every stage, on one device or many."""
