"""Gives up the locks that a request, or a task of Celery, has left held.

The thread that served it serves others later. What was taken before it began, or was handed over,
is left alone.
"""

from __future__ import annotations

import logging
import sys
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync
from django.core.signals import request_finished, request_started

from .core import flow, possession, reentrancy, sharing

logger = logging.getLogger("django_setnx_lock.lock")

# How many unfinished ones in one place are remembered: some servers never tell of the end.
_REMEMBERED = 64
# For each place where something has begun: the number of the first handle after that.
_begun: WeakKeyDictionary[object, list[int]] = WeakKeyDictionary()


def install() -> None:
    """Listen to Django, and to Celery if this process has it. A second call changes nothing."""
    # Django's ASGI handler makes one for each request; child tasks and other threads have it too.
    reentrancy.scope = SyncToAsync.thread_sensitive_context
    uid = __name__
    request_started.connect(_request_begins, dispatch_uid=uid)
    request_finished.connect(_request_ends, dispatch_uid=uid)
    # A worker, and whoever calls its tasks, has imported it; it takes long to.
    if "celery" in sys.modules:
        from celery import signals

        signals.task_prerun.connect(_task_begins, dispatch_uid=uid, weak=False)
        signals.task_postrun.connect(_task_ends, dispatch_uid=uid, weak=False)


def begin() -> None:
    """Take note that something begins here that ends with :func:`end`."""
    begun = _begun.setdefault(_place(), [])
    begun.append(possession.next_number())
    del begun[:-_REMEMBERED]


def end(what: str) -> None:
    """Give up what was taken here since :func:`begin` and is still held at the end of ``what``."""
    place = _place()
    begun = _begun.get(place)
    if not begun:
        return
    since = begun.pop()
    for held in reentrancy.left_held(place):
        # What is put off ends with the transaction around this.
        if held.number >= since and not sharing.is_put_off(held):
            logger.warning(
                "the lock %r is still held at the end of %s: it is no longer renewed and ends with "
                "its lease; release it, or call handover() on a handle that is to outlive it",
                held.key,
                what,
            )
            held.give_up(f"it was left held at the end of {what}")


def _place() -> object:
    return SyncToAsync.thread_sensitive_context.get(None) or flow.current()


def _request_begins(**kwargs: Any) -> None:
    begin()


def _request_ends(**kwargs: Any) -> None:
    end("the request")


def _task_begins(**kwargs: Any) -> None:
    begin()


def _task_ends(sender: Any = None, **kwargs: Any) -> None:
    end(f"the task {getattr(sender, 'name', sender)}")
