"""Trace-ratio feature selection over several classification tasks."""
