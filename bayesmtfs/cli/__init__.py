"""The command line, ``bayesmtfs``: `main` has the small commands, the larger ones have files of their own."""
