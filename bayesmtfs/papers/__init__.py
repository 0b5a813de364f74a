"""What belongs to the five papers: their data sets, what they compare with, and their experiments."""
