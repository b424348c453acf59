"""What an operator sees of the locks, and does to their holders."""
