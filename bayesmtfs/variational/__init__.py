"""A variational posterior under the prior with exact zeros: a sum of single effects, by coordinate ascent."""
