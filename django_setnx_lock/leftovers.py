"""Give up the locks that a request, or a Celery task, has left held.

The thread that served it serves others later. Locks that were taken before it began, or handed
over, are left alone.
"""

from __future__ import annotations

import logging
import sys
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync
from django.core.signals import request_finished, request_started

from .core.locks import grant, owner, reentrancy

logger = logging.getLogger("django_setnx_lock.lock")

# How many unfinished starts are kept for one place: some servers never signal the end.
_REMEMBERED = 64
# For each place, the number of the first handle after each start.
_begun: WeakKeyDictionary[object, list[int]] = WeakKeyDictionary()


def install() -> None:
    """Listen to Django, and to Celery if this process has it. A second call changes nothing."""
    # Django's ASGI handler makes one for each request; child tasks and other threads have it too.
    reentrancy.scope = SyncToAsync.thread_sensitive_context
    uid = __name__
    request_started.connect(begin, dispatch_uid=uid)
    request_finished.connect(end, dispatch_uid=uid)
    # A worker, or a caller of its tasks, has imported Celery already; importing it takes long.
    if "celery" in sys.modules:
        from celery import signals

        signals.task_prerun.connect(begin, dispatch_uid=uid, weak=False)
        signals.task_postrun.connect(_task_ends, dispatch_uid=uid, weak=False)


def begin(**kwargs: Any) -> None:
    """Note the start of a request or task, which ends with :func:`end`."""
    begun = _begun.setdefault(_place(), [])
    begun.append(grant.next_number())
    del begun[:-_REMEMBERED]


def end(what: str = "the request", **kwargs: Any) -> None:
    """Give up the locks that were taken here since :func:`begin` and are still held."""
    place = _place()
    begun = _begun.get(place)
    if not begun:
        return
    since = begun.pop()
    for held in reentrancy.left_held(place):
        # A deferred release comes with the end of the transaction around this.
        if held.number >= since and not held.is_put_off:
            logger.warning(
                "the lock %r is still held at the end of %s: it is no longer renewed and ends with "
                "its lease; release it, or call handover() on a handle that is to outlive it",
                held.key,
                what,
            )
            held.give_up(f"it was left held at the end of {what}")


def _place() -> object:
    return SyncToAsync.thread_sensitive_context.get(None) or owner.current()


def _task_ends(sender: Any = None, **kwargs: Any) -> None:
    end(f"the task {getattr(sender, 'name', sender)}")
