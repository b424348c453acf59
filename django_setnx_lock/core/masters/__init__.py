"""Several independent servers that are asked at once, for :class:`~..redlock.Redlock`."""
