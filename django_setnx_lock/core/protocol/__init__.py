"""Keys, commands, scripts and replies: what is said to Redis, without sending it."""
