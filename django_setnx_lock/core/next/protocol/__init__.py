"""What is said to Redis, and what its answers mean. Pure: no I/O, no clock."""
