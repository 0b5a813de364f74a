"""One HTML page about one or several fits."""

from bayesmtfs.reporting.page import named_fits, report
from bayesmtfs.reporting.source import Source

__all__ = ["Source", "named_fits", "report"]
