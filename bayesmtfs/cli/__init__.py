"""The command line, ``bayesmtfs``: commands, what they share, and the demonstration."""

from bayesmtfs.cli.main import app, main

__all__ = ["app", "main"]
