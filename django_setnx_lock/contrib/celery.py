"""Celery tasks under the lock that their arguments name: ``@locked_task("invoice:<pk>")``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from celery import shared_task
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Retry
from django.core.checks import CheckMessage, Tags, register

from ..arguments import arguments_in, names_in, takes_any_name
from ..checks import unusable_caches
from ..core.errors import LockBusy, LockError, LockUnavailable
from ..core.locks.lock import RedisLock
from ..core.locks.options import UNSET
from ..core.plain import plain
from ..core.protocol import commands
from ..key_template import KeyTemplate
from ..locks import make_one
from ..options import LockOptions

if TYPE_CHECKING:
    from ..options import DoorOptions

logger = logging.getLogger("django_setnx_lock.lock")

_BEGUN = "setnx_lock_begun"
# The caches that tasks are locked in, by the names of their functions or classes.
_named: dict[str, Any] = {}
# The options of a task besides its lock.
_DECLARED = ("on_busy", "busy_countdown", "lock_options")
_ON_BUSY = ("retry", "skip", "wait")


class LockedTask(DjangoTask):  # type: ignore[misc]  # Celery ships no types
    """A task that runs under a lock: ``@shared_task(base=LockedTask, lock_key="invoice:<pk>")``.

    ``lock_key``: the key; ``<name>`` is an argument of the task. ``on_busy``: what becomes of a
    task whose lock somebody else holds: ``retry`` sends it again, for ``busy_countdown`` seconds
    (10) later, as often as need be and without counting as a retry of its own; ``skip`` discards
    it, as Celery does with one that has expired; ``wait`` waits for it, and fails with LockBusy
    after the ``blocking_timeout``. ``lock_options``: those of :class:`LockOptions` (none);
    ``blocking_timeout`` is 0 seconds but for ``wait``, where it is the setting.

    The lock is released when the body has ended. A task whose lock was lost on the way fails with
    LockLost, and one of which Redis cannot say whether it may begin fails with LockUnavailable, or
    is sent again with ``retry``.

    A task that is called as a function takes the lock as ``with lock(...)`` does.

    Raises ValueError or TypeError where the task is declared, for a template that names what it
    does not take, and for bad options.
    """

    abstract = True
    lock_key = ""
    on_busy = "retry"
    busy_countdown: float = 10
    lock_options: ClassVar[DoorOptions] = {}

    _template: KeyTemplate
    _options: LockOptions
    _signature: inspect.Signature

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        run = cls.__dict__.get("run")
        if run is None:
            return
        is_bound = not isinstance(run, staticmethod)
        func = run if is_bound else run.__func__
        cls._template, cls._options, cls._signature = _checked(
            cls,
            func,
            is_bound=is_bound,
            lock_key=cls.lock_key,
            **{name: getattr(cls, name) for name in _DECLARED},
        )

    def lock_for(self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> RedisLock:
        """Return the lock of a call. Raises TypeError when the task cannot be called so."""
        arguments = arguments_in(self._signature, args or (), kwargs or {})
        options = self._options
        # By the note a task knows its own lock.
        own = replace(
            options, label=options.label or f"task {self.name}", note=self.request.id or ""
        )
        return make_one(self._template.resolve(arguments), own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task's body under its lock."""
        request = self.request
        if request.called_directly or _BEGUN in request.__dict__:
            with self.lock_for(args, kwargs):
                return super().__call__(*args, **kwargs)
        request.__dict__[_BEGUN] = True
        one = self.lock_for(args, kwargs)
        is_patient = self.on_busy == "wait" or self._options.blocking_timeout is not UNSET
        try:
            held = one.take(one.blocking_timeout if is_patient else 0)
        except LockBusy as busy:
            self._put_off(busy)
        except LockUnavailable as error:
            if self.on_busy != "retry" or request.is_eager:
                raise
            self._send_again(error)
        try:
            result = self.run(*args, **kwargs)
        except BaseException as error:
            held.finish(error)
            raise
        try:
            held.finish(None)
        except LockUnavailable as error:
            # The work was done in time; the lease ends by itself.
            logger.error("%s", error)
        return result

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


def locked_task(template: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a ``@shared_task`` of a :class:`LockedTask`: ``@locked_task("invoice:<invoice_id>")``.

    ``template``: its ``lock_key``. ``options``: ``on_busy``, ``busy_countdown`` and
    ``lock_options`` of the task, and what ``@shared_task`` takes.

    Raises ValueError or TypeError at decoration as LockedTask does.
    """
    options.setdefault("base", LockedTask)

    def decorate(func: Callable[..., Any]) -> Any:
        # Celery makes the task later, where it is used first.
        given = {name: options.get(name, getattr(LockedTask, name)) for name in _DECLARED}
        _checked(
            func,
            func,
            is_bound=bool(options.get("bind")),
            lock_key=template,
            **given,
        )
        return shared_task(lock_key=template, **options)(func)

    return decorate


@register(Tags.caches)
def check_aliases(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E011: the caches that tasks name in their ``lock_options`` can hold locks."""
    return [
        found
        for name, using in _named.items()
        for found in unusable_caches(f"The task {name}", using)
    ]


def _checked(
    declared: Any,
    run: Callable[..., Any],
    *,
    is_bound: bool,
    lock_key: str,
    on_busy: object,
    busy_countdown: Any,
    lock_options: Mapping[str, Any],
) -> tuple[KeyTemplate, LockOptions, inspect.Signature]:
    """Return the template, options and signature of a task. Raises for bad options."""
    name, signature = declared.__name__, inspect.signature(run)
    if not lock_key:
        raise TypeError(
            f'the task {name} needs a key: give lock_key="invoice:<invoice_id>", of its arguments'
        )
    parameters = list(signature.parameters.values())[int(is_bound) :]
    template, signature = KeyTemplate(lock_key), signature.replace(parameters=parameters)
    names = names_in(signature)
    missing = template.roots.difference(names)
    if missing and not takes_any_name(signature):
        raise ValueError(
            f"the key template {lock_key!r} names <{min(missing)}>, but the task {name} takes "
            f"{', '.join(names) or 'no arguments'}"
        )
    if on_busy not in _ON_BUSY:
        raise ValueError(f"on_busy is one of {', '.join(_ON_BUSY)}, not {on_busy!r}")
    commands.milliseconds(busy_countdown, "busy_countdown")
    options = LockOptions(**lock_options)
    # Celery makes a class of the name of the function; it is one task.
    _named[f"{declared.__module__}.{name}"] = options.using
    return template, options, signature
