"""The command line, ``bayesmtfs``: one file per command."""

from bayesmtfs.cli.main import app, main

__all__ = ["app", "main"]
