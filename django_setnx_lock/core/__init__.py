"""The lock itself, on redis-py alone. Nothing here imports Django."""
