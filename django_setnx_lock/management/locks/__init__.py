"""``manage.py locks``: who holds what, and what Redis may do to it."""
