"""Locks on a Redis Cluster: which node to ask, and what to do while slots move."""
