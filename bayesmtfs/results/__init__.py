"""What a fit leaves behind, and the files it is kept in."""
