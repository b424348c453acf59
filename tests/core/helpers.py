"""What these tests take of others until they have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.processes import in_thread as in_thread
from tests.support.locks import *  # noqa: F403 - all of it
from tests.wire.helpers import *  # noqa: F403

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_setnx_lock.core import LockInfo


def keys_of(locks: Iterable[LockInfo]) -> list[str]:
    return [one.key for one in locks]
