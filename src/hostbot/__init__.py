"""hostbot: a robot watches one human video and does the task, with no parameter update."""

__version__ = "0.1.0"
