"""The public name of `bayesmtfs.data.moments`."""

import sys

from bayesmtfs.data import moments

sys.modules[__name__] = moments
