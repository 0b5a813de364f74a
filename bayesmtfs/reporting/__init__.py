"""One HTML page about one or several fits."""

from bayesmtfs.reporting.page import report
from bayesmtfs.reporting.source import Source

__all__ = ["Source", "report"]
