"""Brokers of Celery."""

from __future__ import annotations

import pytest
from celery import Celery
from kombu.exceptions import VersionMismatch


def need_broker(url: str) -> None:
    """Skip the test if this Celery cannot speak to Redis with the redis-py that is here."""
    try:
        with Celery(broker=url, set_as_current=False).connection_for_write() as connection:
            connection.connect()
    except VersionMismatch as error:
        pytest.skip(str(error))
