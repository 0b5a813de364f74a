"""The observations: tasks, frames, classes, sums over rows, and the units they are measured in."""
