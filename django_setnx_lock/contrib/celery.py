"""Celery tasks under the lock that their arguments name: ``@locked_task("invoice:<pk>")``."""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from celery import shared_task
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Retry
from celery.worker.request import Request

from ..core import protocol
from ..core.errors import LockBusy, LockError, LockUnavailable
from ..core.held import Held
from ..core.keytemplate import KeyTemplate
from ..core.lock import RedisLock
from ..core.taking_over import release
from ..locks import lock as make_lock
from ..signatures import arguments_in, names_in, takes_any_name

if TYPE_CHECKING:
    from ..locks import Options

logger = logging.getLogger("django_setnx_lock.lock")

# A message's header: the ticket of a lock that is handed to the task. A secret.
_TICKET = "setnx_lock_ticket"
# What a worker adds for its own process that runs the task: the token to hold the lock by.
_TOKEN = "setnx_lock_token"  # noqa: S105 - the name of it
_BEGUN = "setnx_lock_begun"
_ON_BUSY = ("retry", "skip", "wait")
_OPTIONS = frozenset(
    (
        *("timeout", "blocking_timeout", "using", "renew", "max_hold", "min_hold", "replicas"),
        *("replica_timeout", "protocol", "unit", "expire", "shared", "limit", "polling"),
    )
)


class LockedTask(DjangoTask):  # type: ignore[misc]  # Celery ships no types
    """A task that runs under a lock: ``@shared_task(base=LockedTask, lock="invoice:<pk>")``.

    ``lock``: the key; ``<name>`` is an argument of the task. ``on_busy``: what becomes of a task
    whose lock somebody else holds: ``retry`` sends it again, for ``busy_countdown`` seconds (10)
    later, as often as need be and without counting as a retry of its own; ``skip`` discards it,
    as Celery does with one that has expired; ``wait`` waits for it, and fails with LockBusy after
    the ``blocking_timeout``. ``lock_options``: what else :func:`lock` takes (none);
    ``blocking_timeout`` is 0 seconds but for ``wait``, where it is the setting.

    The lock is let go when the body has ended; with ``acks_late`` when the worker has acknowledged
    the message. A task whose lock was lost on the way fails with LockLost, and one of which Redis
    cannot say whether it may begin fails with LockUnavailable, or is sent again with ``retry``.

    A task that is called as a function takes the lock as ``with lock(...)`` does.

    Raises ValueError or TypeError where the task is declared, for a template that names what it
    does not take, and for bad options.
    """

    abstract = True
    Request = f"{__name__}:LockedRequest"
    lock = ""
    on_busy = "retry"
    busy_countdown: float = 10
    lock_options: ClassVar[Options] = {}

    _template: KeyTemplate
    _signature: inspect.Signature

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        run = cls.__dict__.get("run")
        if run is None:
            return
        is_bound = not isinstance(run, staticmethod)
        cls._signature = _signature(run if is_bound else run.__func__, is_bound=is_bound)
        cls._template = _checked_template(cls.__name__, cls.lock, cls._signature)
        _check_options(cls.on_busy, cls.busy_countdown, cls.lock_options)

    def lock_for(self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> RedisLock:
        """The lock of a call with ``args`` and ``kwargs``.

        Raises TypeError when the task cannot be called so, else as :meth:`KeyTemplate.resolve`.
        """
        arguments = arguments_in(self._signature, args or (), kwargs or {})
        more: Any = self.lock_options
        one: RedisLock = make_lock(
            self._template.resolve(arguments),
            label=f"task {self.name}",
            note=self.request.id or "",
            template=self._template.text,
            **more,
        )
        return one

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *positional: Any,
        held: Held | str | None = None,
        **options: Any,
    ) -> Any:
        """Send the task; with ``held`` its lock is held all the time until the task has it.

        ``held``: a handle of the lock, which is given away, or the ticket of one that was (None:
        the task takes the lock itself). It has to be taken over within its ``timeout``; a task that
        begins later fails with LockLost. When the task cannot be sent, the lock is let go. The
        ticket travels in the message's headers; it is a secret.

        Raises TypeError for a ``held`` that is neither, ValueError when it is another lock than the
        task's, and as :meth:`Held.give_away`.
        """
        if held is None:
            return super().apply_async(args, kwargs, *positional, **options)
        if not isinstance(held, (Held, str)):
            raise TypeError(f"held is the handle of one lock or its ticket, not {held!r}")
        one = self.lock_for(args, kwargs)
        if isinstance(held, Held) and held.name != one.name:
            raise ValueError(
                f"the task {self.name} runs under the lock {one.key!r}, and was handed "
                f"{held.key!r}: hand it the one that its arguments name"
            )
        ticket = held.give_away() if isinstance(held, Held) else held
        options["headers"] = {**(options.get("headers") or {}), _TICKET: ticket}
        try:
            return super().apply_async(args, kwargs, *positional, **options)
        except BaseException:
            try:
                one.adopt(ticket).release()
            except LockError as error:
                logger.warning("%s", error)
            raise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task's body under its lock."""
        request = self.request
        if request.called_directly or _BEGUN in request.__dict__:
            with self.lock_for(args, kwargs):
                return super().__call__(*args, **kwargs)
        request.__dict__[_BEGUN] = True
        # They are secrets: neither the body nor a retry has them.
        ticket, token = _taken_out(request, _TICKET), _taken_out(request, _TOKEN)
        one = self.lock_for(args, kwargs)
        try:
            held = one._adopt(ticket, token) if ticket else one._take(self._patience(one), token)
        except LockBusy as busy:
            self._put_off(busy)
        except LockUnavailable as error:
            if ticket or self.on_busy != "retry" or request.is_eager:
                raise
            self._send_again(error)
        try:
            result = self.run(*args, **kwargs)
        except BaseException as error:
            _end(held, error, is_late=token is not None)
            raise
        try:
            _end(held, None, is_late=token is not None)
        except LockUnavailable as error:
            # The work was done in time; the lease ends by itself.
            logger.error("%s", error)
        return result

    def _patience(self, one: RedisLock) -> float | None:
        if self.on_busy == "wait" or "blocking_timeout" in self.lock_options:
            return one.blocking_timeout
        return 0

    def _put_off(self, busy: LockBusy) -> NoReturn:
        """Do what is to be done where the lock is busy."""
        request = self.request
        # Of a worker that was killed, or that is still at it: to skip it could lose the work.
        is_own = busy.holder is not None and busy.holder.note == request.id
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

    @classmethod
    def _is_let_go_late(cls) -> bool:
        """Whether the worker lets the lock go: not where only its handle can."""
        kinds = ("shared", "limit", "polling", "min_hold")
        options = cls.lock_options
        return not any(options.get(kind) for kind in kinds)


class LockedRequest(Request):  # type: ignore[misc]  # the same
    """A message that a worker has received, whose lock it lets go after the acknowledgement.

    The process that runs the task may be another one than that which acknowledges it. So this one
    chooses the token, and the other leaves the lock held.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request_dict.pop(_TOKEN, None)
        if self.task.acks_late and self._can_be_let_go():
            self._request_dict[_TOKEN] = secrets.token_hex(16)

    def __init_subclass__(cls, **options: Any) -> None:
        # Celery makes a class for each task, with an on_success() that calls no other. It is
        # called when the task has ended, whatever came of it, and by nothing else.
        super().__init_subclass__(**options)
        inner = cls.__dict__.get("on_success")
        if inner is None:
            return

        def on_success(self: LockedRequest, outcome: Any, **kwargs: Any) -> Any:
            try:
                return inner(self, outcome, **kwargs)
            finally:
                self._let_go()

        cls.on_success = on_success

    def _lock(self) -> RedisLock | None:
        try:
            args, kwargs, _ = self._payload
            one: RedisLock = self.task.lock_for(args, kwargs)
        except Exception:  # noqa: BLE001 - a value may raise what it likes
            # The task fails for the same reason.
            return None
        return one

    def _can_be_let_go(self) -> bool:
        one = self._lock()
        return one is not None and one.can_be_given_away and self.task._is_let_go_late()

    def _let_go(self) -> None:
        token = self._request_dict.get(_TOKEN)
        one = None if token is None else self._lock()
        if one is not None:
            release(one.turn().target, token)


def locked_task(template: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``@shared_task`` of a :class:`LockedTask`: ``@locked_task("invoice:<invoice_id>")``.

    ``template``: its ``lock``. ``options``: ``on_busy``, ``busy_countdown`` and ``lock_options`` of
    the task, and what ``@shared_task`` takes.

    Raises ValueError or TypeError at decoration as LockedTask does.
    """
    options.setdefault("base", LockedTask)

    def decorate(func: Callable[..., Any]) -> Any:
        # Celery makes the task later, where it is used first.
        signature = _signature(func, is_bound=bool(options.get("bind")))
        _checked_template(func.__name__, template, signature)
        _check_options(
            options.get("on_busy", LockedTask.on_busy),
            options.get("busy_countdown", LockedTask.busy_countdown),
            options.get("lock_options", {}),
        )
        return shared_task(lock=template, **options)(func)

    return decorate


def _end(held: Held, body_error: BaseException | None, *, is_late: bool) -> None:
    """Let go of ``held``, or leave it to the worker, at the end of a body."""
    if not is_late:
        held.finish(body_error)
        return
    try:
        held.give_away()
    except LockError as error:
        held.tell_at_end(error, body_error, to_raise=True)


def _taken_out(request: Any, name: str) -> Any:
    headers = request.headers or {}
    found = headers.pop(name, None)
    return request.__dict__.pop(name, None) or found


def _signature(run: Callable[..., Any], *, is_bound: bool) -> inspect.Signature:
    signature = inspect.signature(run)
    return signature.replace(parameters=list(signature.parameters.values())[int(is_bound) :])


def _checked_template(name: str, text: str, signature: inspect.Signature) -> KeyTemplate:
    if not text:
        raise TypeError(
            f'the task {name} needs a lock: give lock="invoice:<invoice_id>", of its arguments'
        )
    template, names = KeyTemplate(text), names_in(signature)
    missing = template.roots.difference(names)
    if missing and not takes_any_name(signature):
        raise ValueError(
            f"the key template {text!r} names <{min(missing)}>, but the task {name} takes "
            f"{', '.join(names) or 'no arguments'}"
        )
    return template


def _check_options(on_busy: object, countdown: Any, options: Mapping[str, Any]) -> None:
    if on_busy not in _ON_BUSY:
        raise ValueError(f"on_busy is one of {', '.join(_ON_BUSY)}, not {on_busy!r}")
    protocol.milliseconds(countdown, "busy_countdown")
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise TypeError(
            f"lock_options has no {unknown[0]!r}; it can have {', '.join(sorted(_OPTIONS))}"
        )
    known = {name: value for name, value in options.items() if name not in {"using", "replicas"}}
    # Refuses what is no time, and what does not go together.
    RedisLock(None, "lock:a", **{name: one for name, one in known.items() if one is not None})
