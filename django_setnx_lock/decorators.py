"""``@redis_lock("order:<pk>")``: a view or function under the lock that its arguments name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.http import Http404

from .atomic_requests import databases, leave_to_lock, refuse_async
from .core import protocol
from .core.keytemplate import KeyTemplate, NotCanonical
from .core.lease import Upkeep
from .core.lock import RedisLock
from .core.replicas import checked
from .core.shared import chosen
from .core.unset import UNSET, Unset
from .guard import aguard, guard
from .locks import lock
from .row_keys import parsers_for
from .signatures import (
    arguments_in,
    dotted_name,
    is_async,
    is_django_task,
    names_in,
    own_signature,
    refuse_undecoratable,
    signature_of,
    takes_any_name,
)
from .transactions import checked_release
from .view_request import known_user, request_in, takes_request

if TYPE_CHECKING:
    from django.db.models import Model

    from .guard import OnBusy, OnLost, OnUnavailable
    from .transactions import Release

_ANSWERS = ("on_busy", "on_unavailable", "on_lost")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def redis_lock(
    template: str,
    *,
    model: type[Model] | None = None,
    timeout: float | None = None,
    blocking_timeout: float | Unset | None = UNSET,
    using: str | Sequence[str] | None = None,
    renew: bool | None = None,
    max_hold: float | None = None,
    min_hold: float | None = None,
    replicas: int | None = None,
    on_busy: OnBusy = None,
    on_unavailable: OnUnavailable = None,
    on_lost: OnLost = None,
    label: str | None = None,
    note: str = "",
    reentrant: bool | None = None,
    shared: bool = False,
    limit: int | None = None,
    release: Release | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Run a view or function under the lock that its arguments name.

    ``template``: the key; ``<name>`` is an argument of the call, ``<user.pk>`` an attribute of
    one or, in views, of the request, and ``<pk:int>`` an argument of type ``int``, ``uuid`` or
    ``str``. ``model``: the model whose fields the other names without a dot are, ``pk`` among
    them (None: they are taken as they come). Text that is not written as ``str()`` writes the
    value of its type or field makes no key: a view answers 404, another call raises ValueError.

    ``timeout``: the lease in seconds (None: the setting ``TIMEOUT``).
    ``blocking_timeout``: how many seconds to wait (default: 0 for views, the
    setting ``BLOCKING_TIMEOUT`` for functions; None: without limit). ``using``: the cache alias,
    or several for a Redlock, which an async function cannot have (None: the setting ``CACHE``).
    ``renew``: whether the lease is renewed while the call runs (None: the setting ``RENEW``);
    without, ``timeout`` must outlast it. ``max_hold``: for how many seconds at most (None: without
    limit). ``min_hold``: for how many seconds from the grant on nobody else gets it, however soon
    the call ends (None: none). ``replicas``: how many replicas have to acknowledge it (None: the
    setting ``REPLICAS``). ``label`` (default: what is decorated) and ``note`` are shown to
    operators. ``reentrant``: whether a caller that holds the lock already goes on with it (None:
    the setting ``REENTRANT``). ``shared``: whether calls that are ``shared`` may run at the same
    time (False); ``limit``: how many with a limit may (None: one runs alone). ``release``:
    ``commit`` to hold it until the transaction has ended, which a view under ATOMIC_REQUESTS begins
    under its lock then; ``exit`` to let go of it before (None: the setting ``RELEASE``).

    A call with a request among its first two arguments, or called ``request``, is a view's.
    When its lock is busy it answers 409, when Redis cannot say or the lock was lost on the way
    503. ``on_busy``, ``on_unavailable`` and ``on_lost`` replace these: a callable ``(request,
    exception) -> response``, or ``"raise"``; a loss without ``on_lost`` is for
    ``on_unavailable``. Any other call raises LockBusy, LockUnavailable and LockLost.

    A function of Django's ``@task`` may be decorated above or below that; it is no view.

    An async view or function waits in its event loop, and is cancelled when its lock is lost on
    the way; its ``on_busy``, ``on_unavailable`` and ``on_lost`` may be async, too.

    Raises ValueError or TypeError at decoration for a malformed template, for one that names
    what the callable does not take or the model does not have, for a bad time, and for classes
    and generators.
    """
    parsed = KeyTemplate(template)
    options = LockOptions(
        template=parsed,
        parsers=parsers_for(model, parsed),
        timeout=timeout,
        blocking_timeout=blocking_timeout,
        using=using,
        renew=renew,
        max_hold=max_hold,
        min_hold=min_hold,
        replicas=replicas,
        on_busy=on_busy,
        on_unavailable=on_unavailable,
        on_lost=on_lost,
        label=label,
        note=note,
        reentrant=reentrant,
        shared=shared,
        limit=limit,
        release=release,
    )

    def decorate(func: Callable[_P, _R]) -> Callable[_P, _R]:
        if is_django_task(func):
            # A task is not called, but its function is.
            task: Any = func
            return cast("Callable[_P, _R]", replace(task, func=decorate(task.func)))
        refuse_undecoratable(func, "redis_lock")
        signature = signature_of(func)
        _refuse_misfit(options, func, signature)
        name = dotted_name(func)

        def lock_of(request: Any, args: Any, kwargs: Any) -> RedisLock:
            try:
                arguments = arguments_in(signature, args, kwargs)
            except TypeError:
                # A decorator in between takes other arguments than what it wraps.
                arguments = arguments_in(own_signature(func), args, kwargs)
            return options.lock_for(name, arguments, request)

        @wraps(func)
        def locked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            request = request_in(args, kwargs)
            one = lock_of(request, args, kwargs)
            if request is None:
                with one:
                    return _call(func, *args, **kwargs)
            left = databases(request, wrapper, options)
            return cast(
                "_R", guard(one, request, lambda: _call(func, *args, **kwargs), options, left)
            )

        @wraps(func)
        async def alocked(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            request = request_in(args, kwargs)
            refuse_async(request, wrapper, options)
            try:
                one = lock_of(request, args, kwargs)
            except SynchronousOnlyOperation:
                # As <user.pk> of a user who is still to be looked up.
                one = await sync_to_async(lock_of)(request, args, kwargs)
            if request is None:
                async with one:
                    return await _awaited(func, *args, **kwargs)
            return await aguard(one, request, lambda: _awaited(func, *args, **kwargs), options)

        wrapper = cast("Callable[_P, _R]", alocked) if is_async(func) else locked
        # A name of its own: decorators of decorators merge the __dict__ of what they wrap.
        setattr(wrapper, f"_redis_lock_{id(options):x}", options)
        leave_to_lock(wrapper, options, release)
        return wrapper

    return decorate


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOptions:
    """What ``redis_lock()`` was given. Decorated callables carry it, for the system checks."""

    template: KeyTemplate
    parsers: Mapping[str, Callable[[Any], Any]]
    timeout: float | None
    blocking_timeout: float | Unset | None
    using: str | Sequence[str] | None
    renew: bool | None
    max_hold: float | None
    min_hold: float | None
    replicas: int | None
    on_busy: OnBusy
    on_unavailable: OnUnavailable
    on_lost: OnLost
    label: str | None
    note: str
    reentrant: bool | None
    shared: bool
    limit: int | None
    release: Release | None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            protocol.milliseconds(self.timeout, "timeout")
        if self.blocking_timeout is not UNSET:
            protocol.waiting_time(self.blocking_timeout)
        Upkeep(
            True if self.renew is None else self.renew,
            self.max_hold,
            reentrant=True if self.reentrant is None else self.reentrant,
        )
        protocol.least_hold(self.min_hold, self.max_hold)
        checked(self.replicas)
        checked_release(self.release)
        chosen(protocol, self.shared, self.limit, min_hold=self.min_hold, reentrant=self.reentrant)
        for name in _ANSWERS:
            answer = getattr(self, name)
            if answer not in (None, "raise") and not callable(answer):
                raise TypeError(
                    f'{name} is "raise" or a callable (request, exception) -> response, '
                    f"not {answer!r}"
                )

    def lock_for(self, name: str, arguments: dict[str, Any], request: Any) -> RedisLock:
        """The lock for one call of the callable ``name``.

        Raises as :meth:`KeyTemplate.resolve` and :func:`lock` do, and Http404 in the place of
        NotCanonical for a view.
        """
        kind, wait = "function", self.blocking_timeout
        if request is not None:
            kind, wait = "view", 0 if wait is UNSET else wait
            _add_attributes(arguments, self.template, request)
        try:
            key = self.template.resolve(arguments, self.parsers)
        except NotCanonical as error:
            if request is None:
                raise
            raise Http404(str(error)) from error
        return lock(
            key,
            timeout=self.timeout,
            blocking_timeout=wait,
            using=self.using,
            renew=self.renew,
            max_hold=self.max_hold,
            min_hold=self.min_hold,
            replicas=self.replicas,
            label=f"{kind} {name}" if self.label is None else self.label,
            user=known_user(request),
            note=self.note,
            template=self.template.text,
            reentrant=self.reentrant,
            shared=self.shared,
            limit=self.limit,
            release=self.release,
        )


def options_of(func: Any) -> list[LockOptions]:
    """The locks that ``func`` is decorated with, the decorators around them looked through."""
    return [one for one in getattr(func, "__dict__", {}).values() if isinstance(one, LockOptions)]


def _refuse_misfit(
    options: LockOptions, func: Callable[..., Any], signature: inspect.Signature
) -> None:
    if is_async(func) and not isinstance(options.using, (str, type(None))):
        raise TypeError(
            f"{dotted_name(func)} is async, and a lock on several masters has no asyncio: name one "
            "cache alias with using, or make it a plain function"
        )
    for name in _ANSWERS:
        # Any method may be behind a **kwargs, as the one that method_decorator tries it on.
        can_be_async = is_async(func) or takes_any_name(signature)
        if iscoroutinefunction(getattr(options, name)) and not can_be_async:
            raise TypeError(f"{name} must not be async, as {dotted_name(func)} is not")
    text, names = options.template.text, names_in(signature)
    has_request = takes_request(signature)
    if not takes_any_name(signature):
        for field in options.template.fields:
            root, dot, _ = field.partition(".")
            if root not in names and not (dot and has_request):
                raise ValueError(
                    f"the key template {text!r} names <{field}>, but {dotted_name(func)} takes "
                    f"{', '.join(names) or 'no arguments'}"
                    + ("" if not dot else "; call its request parameter request if it has one")
                )
    if not has_request and any(callable(getattr(options, name)) for name in _ANSWERS):
        raise TypeError(
            f"{dotted_name(func)} takes no request, so there is none to answer; "
            "catch LockBusy, LockUnavailable and LockLost where it is called"
        )


def _add_attributes(arguments: dict[str, Any], template: KeyTemplate, request: Any) -> None:
    """Add what dotted fields name that is no argument, from the request."""
    for root, dot, _ in (field.partition(".") for field in template.fields):
        if dot and root not in arguments:
            if root == "request":
                arguments[root] = request
            elif hasattr(request, root):
                arguments[root] = getattr(request, root)


def _call(func: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    result = func(*args, **kwargs)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            f"{dotted_name(func)} gives a coroutine but is no coroutine function: mark it with "
            "inspect.markcoroutinefunction(), or asgiref's before Python 3.12"
        )
    return result


async def _awaited(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = func(*args, **kwargs)
    # A view of REST framework may be marked async and answer at once.
    return await result if inspect.isawaitable(result) else result
