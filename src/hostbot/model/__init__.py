"""The policy model: Wan's video transformer, a narrow action expert, and attention over both."""
