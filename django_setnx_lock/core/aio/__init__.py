"""The lock for asyncio: thin twins of what waits for Redis, over the same rules."""
