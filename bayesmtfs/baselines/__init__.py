"""What the papers compare with, and what users would otherwise run."""
