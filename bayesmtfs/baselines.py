"""The public name of `bayesmtfs.papers.baselines`."""

import sys

from bayesmtfs.papers import baselines

sys.modules[__name__] = baselines
