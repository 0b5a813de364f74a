"""The convex l1,q family: one problem, several routes to its minimum, each with a certificate."""
