"""While tests run, no lock reaches a real Redis where the kit is in use, unless that is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.core import mail

from ..core.connections.session import Session

_is_allowed = False


@contextmanager
def real_redis() -> Iterator[None]:
    """Let tests that do not use the kit reach the Redis of the settings, for the block."""
    global _is_allowed
    before, _is_allowed = _is_allowed, True
    try:
        yield
    finally:
        _is_allowed = before


def _guarded(call: Any) -> Any:
    @wraps(call)
    def call_guarded(session: Any, *args: Any, **options: Any) -> Any:
        is_fake = session.place[0] not in (0, id(None)) or "fake" in session._kind.__module__
        # Django's runner and pytest-django have set up tests.
        if not is_fake and not _is_allowed and hasattr(mail, "outbox"):
            raise AssertionError(
                f"a lock of this test would reach the Redis at {session.where}: write "
                "LockTestMixin before its test case, or use the fixture locks; or have all tests "
                'in memory with TEST_RUNNER = "django_setnx_lock.testing.LockTestRunner", with '
                "pytest by setnx_lock_suite = true. A test that is to reach it does so within "
                "django_setnx_lock.testing.real_redis()"
            )
        return call(session, *args, **options)

    return call_guarded


# Once, however often this is imported.
Session.call = _guarded(getattr(Session.call, "__wrapped__", Session.call))  # type: ignore[method-assign]  # while tests run
