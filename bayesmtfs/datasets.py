"""The public name of `bayesmtfs.papers.datasets`."""

import sys

from bayesmtfs.papers import datasets

sys.modules[__name__] = datasets
