"""``manage.py with_lock``: run a command while a lock is held."""
