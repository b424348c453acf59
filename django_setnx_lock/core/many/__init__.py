"""Several locks at once: all of them or none."""
