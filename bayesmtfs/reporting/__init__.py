"""One HTML page about one or several fits."""

from bayesmtfs.reporting.page import report

__all__ = ["report"]
