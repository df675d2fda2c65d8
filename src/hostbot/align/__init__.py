"""Alignment: a shared task-progress manifold, learned without labels (paper, "Task progress alignment")."""
