"""Modes and marginal modes under the generalized normal, Jeffreys and matrix-variate priors: MM, EM and evidence."""
