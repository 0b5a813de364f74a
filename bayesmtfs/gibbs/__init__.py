"""The interwoven Gibbs sampler for normal targets: one step of a sweep, one file."""
