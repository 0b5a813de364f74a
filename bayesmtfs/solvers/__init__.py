"""Solvers: one algorithm, one file; each minimises a stated objective and certifies what it found.

- `convex`: the l1,q family at a given penalty, and its path (Obozinski et al. 2006; Zhang et al. 2010, problem (1);
  the batch forms of Yang et al. 2010);
- `em`: MM and EM for the generalized normal, Jeffreys and matrix-variate priors (Zhang et al. 2010);
- `gibbs`: draws from the posterior of normal targets;
- `online`: dual averaging (Yang et al. 2010) and smoothed multi-task learning (Murugesan et al. 2016);
- `discriminative`: the trace ratio (Han et al. 2013).
"""
