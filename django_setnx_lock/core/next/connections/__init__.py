"""Connections of our own to the servers of redis-py's clients."""
