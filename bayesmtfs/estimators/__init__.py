"""Estimators: the scikit-learn face of every route. Nothing here loads PyMC."""
