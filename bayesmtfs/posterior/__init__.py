"""From a PyMC model or a Gibbs kernel to checked draws."""
