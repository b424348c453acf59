"""System checks, one function each. None opens a connection."""
