"""Learners of streams: regularised dual averaging, smoothed multi-task learning (and its batch form)."""
