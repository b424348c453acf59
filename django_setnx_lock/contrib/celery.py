"""Celery tasks under the lock that their arguments name: ``@locked_task("invoice:<pk>")``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn

from celery import shared_task
from celery.exceptions import Ignore, Retry

from ..core.errors import LockBusy, LockUnavailable
from ..core.holder import plain
from ..core.options import milliseconds
from ..decorators import DecoratedLock, let_go

if TYPE_CHECKING:
    from ..options import DoorOptions

_ON_BUSY = ("retry", "skip")


class _TaskLock(DecoratedLock):
    decorator = "locked_task"
    _kind = "task"


def locked_task(
    template: str,
    *,
    on_busy: str = "retry",
    busy_countdown: float = 10,
    lock_options: DoorOptions | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Make a ``@shared_task`` that runs under a lock: ``@locked_task("invoice:<invoice_id>")``.

    ``template``: the key; ``<name>`` is an argument of the task. ``on_busy``: what becomes of a
    task whose lock somebody else holds: ``retry`` sends it again, for ``busy_countdown`` seconds
    (10) later, as often as need be and without counting as a retry of its own; ``skip`` discards
    it, as Celery does with one that has expired. ``lock_options``: those of :class:`LockOptions`
    (none); ``blocking_timeout`` is 0 seconds, and with another the worker waits that long first.
    ``options``: what ``@shared_task`` takes.

    The lock is released when the body has ended. A task whose lock was lost on the way fails with
    LockLost. One of which Redis cannot say whether it may begin is sent again with ``retry``, and
    fails with LockUnavailable otherwise. A task that is called as a function raises LockBusy.

    Raises ValueError or TypeError at decoration for a template that names what the task does not
    take, and for bad options.
    """
    if on_busy not in _ON_BUSY:
        raise ValueError(f"on_busy is one of {', '.join(_ON_BUSY)}, not {on_busy!r}")
    milliseconds(busy_countdown, "busy_countdown")
    given_options: DoorOptions = {"blocking_timeout": 0}
    given_options.update(lock_options or {})
    lock = _TaskLock([template], **given_options)
    is_bound = options.get("bind", False)

    def decorate(func: Callable[..., Any]) -> Any:
        lock_of = lock.lock_of(func)

        @wraps(func)
        def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            given = (self, *args) if is_bound else args
            try:
                # By the note a task knows its own lock.
                held = lock_of(given, kwargs, note=self.request.id or "").take()
            except (LockBusy, LockUnavailable) as error:
                _put_off(self, error, on_busy, busy_countdown)
            with ExitStack() as stack:
                # The work was done in time where Redis cannot be asked: the lease ends by itself.
                stack.push(partial(let_go, held))
                return func(*given, **kwargs)

        # Celery compares with it what a task is sent with.
        signature = inspect.signature(func)
        if not is_bound:
            itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            signature = signature.replace(parameters=[itself, *signature.parameters.values()])
        run.__signature__ = signature  # type: ignore[attr-defined]  # as functools.wraps() would
        return shared_task(**{**options, "bind": True})(run)

    return decorate


def _put_off(
    task: Any, error: LockBusy | LockUnavailable, on_busy: str, countdown: float
) -> NoReturn:
    """Skip the task, send it again, or fail."""
    request = task.request
    if request.called_directly:
        raise error
    if on_busy == "skip":
        if isinstance(error, LockUnavailable):
            raise error
        # The worker may have been killed or still be at work: to skip it could lose the work.
        if error.holder is None or error.holder.note != plain(request.id or "?"):
            if not request.is_eager:
                task.backend.mark_as_revoked(request.id, "its lock is held", request=request)
            raise Ignore(str(error)) from None
    if request.is_eager:
        raise error
    again = task.signature_from_request(request, countdown=countdown, retries=request.retries)
    again.apply_async()
    raise Retry(exc=error, when=countdown, sig=again) from None
