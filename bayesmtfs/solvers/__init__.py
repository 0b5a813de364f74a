"""Solvers: one algorithm, one file; each minimises a stated objective and certifies what it found."""
