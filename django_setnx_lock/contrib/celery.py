"""Celery tasks under the lock that their arguments name: ``@locked_task("invoice:<pk>")``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from celery import shared_task
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Retry
from django.core.checks import CheckMessage, Tags, register

from ..checks import unusable_caches
from ..core.errors import LockBusy, LockError, LockUnavailable
from ..core.holder import plain
from ..core.options import UNSET, milliseconds
from ..decorators import DecoratedLock, let_go

if TYPE_CHECKING:
    from ..core.locks.layered import RedisLock
    from ..options import DoorOptions, LockOptions

_BEGUN = "setnx_lock_begun"
# The caches that tasks are locked in, by the names of their functions.
_named: dict[str, Any] = {}
_ON_BUSY = ("retry", "skip", "wait")


class _TaskLock(DecoratedLock):
    decorator = "locked_task"


class LockedTask(DjangoTask):  # type: ignore[misc]  # Celery ships no types
    """What :func:`locked_task` makes of a function: a task that runs under its lock."""

    abstract = True
    on_busy: str
    busy_countdown: float
    lock_options: LockOptions
    lock_of: Callable[..., RedisLock]

    def lock_for(self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> RedisLock:
        """Return the lock of a call. Raises TypeError when the task cannot be called so."""
        # By the note a task knows its own lock.
        label, note = self.lock_options.label or f"task {self.name}", self.request.id or ""
        return self.lock_of(args or (), kwargs or {}, label=label, note=note)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task's body under its lock."""
        request = self.request
        if request.called_directly or _BEGUN in request.__dict__:
            with self.lock_for(args, kwargs):
                return super().__call__(*args, **kwargs)
        request.__dict__[_BEGUN] = True
        one = self.lock_for(args, kwargs)
        is_patient = self.on_busy == "wait" or self.lock_options.blocking_timeout is not UNSET
        try:
            held = one.take(one.blocking_timeout if is_patient else 0)
        except LockBusy as busy:
            self._put_off(busy)
        except LockUnavailable as error:
            if self.on_busy != "retry" or request.is_eager:
                raise
            self._send_again(error)
        with ExitStack() as stack:
            # The work was done in time where Redis cannot be asked: the lease ends by itself.
            stack.push(partial(let_go, held))
            return self.run(*args, **kwargs)

    def _put_off(self, busy: LockBusy) -> NoReturn:
        """Skip the task, send it again, or fail, as ``on_busy`` says."""
        request = self.request
        # The worker may have been killed or still be at work: to skip it could lose the work.
        is_own = busy.holder is not None and busy.holder.note == plain(request.id or "?")
        if self.on_busy == "skip" and not is_own:
            if not request.is_eager:
                self.backend.mark_as_revoked(request.id, "its lock is held", request=request)
            raise Ignore(str(busy)) from None
        if self.on_busy == "wait" or request.is_eager:
            raise busy
        self._send_again(busy)

    def _send_again(self, error: LockError) -> NoReturn:
        request, countdown = self.request, self.busy_countdown
        again = self.signature_from_request(request, countdown=countdown, retries=request.retries)
        again.apply_async()
        raise Retry(exc=error, when=countdown, sig=again) from None


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
    it, as Celery does with one that has expired; ``wait`` waits for it, and fails with LockBusy
    after the ``blocking_timeout``. ``lock_options``: those of :class:`LockOptions` (none);
    ``blocking_timeout`` is 0 seconds but for ``wait``, where it is the setting. ``options``: what
    ``@shared_task`` takes; a ``base`` is a subclass of :class:`LockedTask`.

    The lock is released when the body has ended. A task whose lock was lost on the way fails with
    LockLost, and one of which Redis cannot say whether it may begin fails with LockUnavailable, or
    is sent again with ``retry``. A task that is called as a function takes the lock as
    ``with lock(...)`` does.

    Raises ValueError or TypeError at decoration for a template that names what the task does not
    take, and for bad options.
    """
    if on_busy not in _ON_BUSY:
        raise ValueError(f"on_busy is one of {', '.join(_ON_BUSY)}, not {on_busy!r}")
    milliseconds(busy_countdown, "busy_countdown")
    lock = _TaskLock([template], **(lock_options or {}))

    def decorate(func: Callable[..., Any]) -> Any:
        given = lock.lock_of(func)

        def lock_of(args: Sequence[Any], kwargs: Mapping[str, Any], **about: str) -> Any:
            return given((None, *args) if options.get("bind") else args, kwargs, **about)

        _named[f"{func.__module__}.{func.__name__}"] = lock.options.using
        about = {
            "on_busy": on_busy,
            "busy_countdown": busy_countdown,
            "lock_options": lock.options,
            "lock_of": staticmethod(lock_of),
        }
        return shared_task(**{"base": LockedTask, **about, **options})(func)

    return decorate


@register(Tags.caches)
def check_aliases(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E011: the caches that tasks name in their ``lock_options`` can hold locks."""
    return [
        found
        for name, using in _named.items()
        for found in unusable_caches(f"The task {name}", using)
    ]
