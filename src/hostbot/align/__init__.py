"""Task-progress alignment: which frame of a demonstration is which of a robot's, eq:embedding to eq:d2tw_loss."""
