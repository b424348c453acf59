"""The locks."""
