"""``python -m hostbot`` is ``hostbot``."""

from hostbot.cli import entry

entry()
