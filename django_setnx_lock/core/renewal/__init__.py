"""Keeping leases: what is due, and the thread or task that renews it."""
