"""``@redis_lock("order:<pk>")``: a view or function under the lock that its arguments name."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.http import Http404

from . import responses
from .arguments import (
    arguments_in,
    dotted_name,
    is_async,
    is_django_task,
    known_user,
    names_in,
    own_signature,
    refuse_undecoratable,
    request_in,
    signature_of,
    takes_any_name,
    takes_request,
)
from .core.errors import LockBusy, LockError, LockLost, LockUnavailable
from .core.locks.batch import check_each
from .core.locks.cancel_scope import CancelScope
from .core.locks.lock import RedisLock
from .core.locks.options import UNSET, Unset
from .key_template import KeyTemplate, NotCanonical
from .locks import check_options, lock
from .transactions import (
    by_client,
    held_around,
    is_deferred,
    leave_to_lock,
    left_databases,
    roll_back,
    transactions_under,
)

if TYPE_CHECKING:
    from typing import Literal

    from django.http import HttpResponseBase

    from .locks import Options
    from .transactions import Release

    # Awaitable for async views only.
    _Response = HttpResponseBase | Awaitable[HttpResponseBase]
    OnBusy = Callable[[Any, LockBusy], _Response] | Literal["raise"] | None

logger = logging.getLogger("django_setnx_lock.views")

# The templates of all that is decorated, which keys in Redis are matched with.
TEMPLATES: set[str] = set()

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoratedLock:
    """What ``redis_lock()`` was given. Decorated callables carry it, for the system checks."""

    template: KeyTemplate
    on_busy: OnBusy
    # What answers, unless there is an on_busy.
    answer: Callable[[Any, LockError], Any]
    label: str | None
    options: Options

    def __post_init__(self) -> None:
        check_options(self.options)
        if self.on_busy not in (None, "raise") and not callable(self.on_busy):
            raise TypeError(
                'on_busy is "raise" or a callable (request, exception) -> response, '
                f"not {self.on_busy!r}"
            )

    def lock_for(self, name: str, arguments: dict[str, Any], request: Any) -> RedisLock:
        """Return the lock for one call of ``name``. Raises Http404 for a bad key of a view."""
        kind, options = "function", self.options.copy()
        if request is not None:
            kind = "view"
            if options.get("blocking_timeout") is UNSET:
                options["blocking_timeout"] = 0
            for root, dot, _ in (field.partition(".") for field in self.template.fields):
                if dot and root not in arguments and (root == "request" or hasattr(request, root)):
                    arguments[root] = request if root == "request" else getattr(request, root)
        try:
            key = self.template.resolve(arguments)
        except NotCanonical as error:
            if request is None:
                raise
            raise Http404(str(error)) from error
        options["label"] = f"{kind} {name}" if self.label is None else self.label
        options["user"] = known_user(request)
        options["template"] = self.template.text
        return lock(key, **options)


def options_of(func: Any) -> list[DecoratedLock]:
    """Return the locks that ``func`` is decorated with, also below other decorators."""
    return [one for one in getattr(func, "__dict__", {}).values() if isinstance(one, DecoratedLock)]


def redis_lock(
    template: str,
    *,
    timeout: float | None = None,
    blocking_timeout: float | Unset | None = UNSET,
    using: str | Sequence[str] | None = None,
    renew: bool | None = None,
    max_hold: float | None = None,
    min_hold: float | None = None,
    replicas: int | None = None,
    on_busy: OnBusy = None,
    label: str | None = None,
    note: str = "",
    reentrant: bool | None = None,
    shared: bool = False,
    limit: int | None = None,
    release: Release | None = None,
    _answer: Callable[[Any, LockError], Any] = responses.answer,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Run a view or function under the lock that its arguments name.

    ``template``: the key; ``<name>`` is an argument of the call, ``<user.pk>`` an attribute of
    one or, in views, of the request, and ``<pk:int>`` an argument of type ``int``, ``uuid`` or
    ``str``. Text that is not written as ``str()`` writes the value of its type makes no key: a
    view answers 404, another call raises ValueError.

    ``blocking_timeout``: how many seconds to wait (default: 0 for views, the setting
    ``BLOCKING_TIMEOUT`` for functions; None: without limit). ``using``: the cache alias, or
    several for a Redlock, which an async function cannot have (None: the setting ``CACHE``).
    ``label`` (default: what is decorated) and ``note`` are shown to operators. ``release``:
    ``commit`` to hold it until the transaction has ended, which a view under ATOMIC_REQUESTS begins
    under its lock then; ``exit`` to let go of it before (None: the setting ``RELEASE``). The other
    options are those of :func:`lock`: without ``renew``, ``timeout`` must outlast the call.

    A call with a request among its first two arguments, or called ``request``, is a view's.
    When its lock is busy it answers 409, when Redis cannot say or the lock was lost on the way
    503. ``on_busy`` replaces the former: a callable ``(request, exception) -> response``, or
    ``"raise"``. Any other call raises LockBusy, LockUnavailable and LockLost.

    A function of Django's ``@task`` may be decorated above or below that; it is no view.

    An async view or function waits in its event loop, and is cancelled when its lock is lost on
    the way; its ``on_busy`` may be async, too.

    Raises ValueError or TypeError at decoration for a malformed template, for one that names
    what the callable does not take for a bad time, and for classes
    and generators.
    """
    # All parameters, and nothing else yet.
    options: Any = dict(locals())
    parsed = KeyTemplate(options.pop("template"))
    decorated = DecoratedLock(
        template=parsed,
        label=options.pop("label"),
        on_busy=options.pop("on_busy"),
        answer=options.pop("_answer"),
        options=options,
    )
    TEMPLATES.add(parsed.text)

    def decorate(func: Callable[_P, _R]) -> Callable[_P, _R]:
        if is_django_task(func):
            # A task is not called, but its function is.
            task: Any = func
            return cast("Callable[_P, _R]", replace(task, func=decorate(task.func)))
        refuse_undecoratable(func, "redis_lock")
        signature = signature_of(func)
        _refuse_misfit(decorated, func, signature)
        name = dotted_name(func)

        def lock_of(request: Any, args: Any, kwargs: Any) -> RedisLock:
            try:
                arguments = arguments_in(signature, args, kwargs)
            except TypeError:
                # A decorator in between takes other arguments than what it wraps.
                arguments = arguments_in(own_signature(func), args, kwargs)
            return decorated.lock_for(name, arguments, request)

        @wraps(func)
        def locked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            request = request_in(args, kwargs)
            one = lock_of(request, args, kwargs)
            if request is None:
                with one:
                    return _call(func, *args, **kwargs)
            left = left_databases(request, wrapper, decorated)
            return cast(
                "_R", _run_view(one, request, lambda: _call(func, *args, **kwargs), decorated, left)
            )

        @wraps(func)
        async def alocked(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            request = request_in(args, kwargs)
            try:
                one = lock_of(request, args, kwargs)
            except SynchronousOnlyOperation:
                # For instance <user.pk> of a user who has not been looked up yet.
                one = await sync_to_async(lock_of)(request, args, kwargs)
            if request is None:
                async with one:
                    return await _awaited(func, *args, **kwargs)
            left = left_databases(request, wrapper, decorated)
            return await _arun_view(
                one, request, lambda: _awaited(func, *args, **kwargs), decorated, left
            )

        wrapper = cast("Callable[_P, _R]", alocked) if is_async(func) else locked
        # A name of its own: decorators of decorators merge the __dict__ of what they wrap.
        setattr(wrapper, f"_redis_lock_{id(decorated):x}", decorated)
        leave_to_lock(wrapper, decorated, release)
        return wrapper

    return decorate


def _refuse_misfit(
    decorated: DecoratedLock, func: Callable[..., Any], signature: inspect.Signature
) -> None:
    if is_async(func) and not isinstance(decorated.options.get("using"), (str, type(None))):
        raise TypeError(
            f"{dotted_name(func)} is async, and a lock on several masters has no asyncio: name one "
            "cache alias with using, or make it a plain function"
        )
    # Any method may be behind a **kwargs, as the one that method_decorator tries it on.
    can_be_async = is_async(func) or takes_any_name(signature)
    if iscoroutinefunction(decorated.on_busy) and not can_be_async:
        raise TypeError(f"on_busy must not be async, as {dotted_name(func)} is not")
    text, names = decorated.template.text, names_in(signature)
    has_request = takes_request(signature)
    if not takes_any_name(signature):
        for field in decorated.template.fields:
            root, dot, _ = field.partition(".")
            if root not in names and not (dot and has_request):
                raise ValueError(
                    f"the key template {text!r} names <{field}>, but {dotted_name(func)} takes "
                    f"{', '.join(names) or 'no arguments'}"
                    + ("" if not dot else "; call its request parameter request if it has one")
                )
    if not has_request and callable(decorated.on_busy):
        raise TypeError(
            f"{dotted_name(func)} takes no request, so there is none to answer; "
            "catch LockBusy, LockUnavailable and LockLost where it is called"
        )


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


def _run_view(
    one: RedisLock,
    request: Any,
    view: Callable[[], Any],
    decorated: DecoratedLock,
    databases: Sequence[str],
) -> Any:
    """Return the response of ``view()``, run under the lock, or the answer in its place."""
    is_done = False
    around = held_around(request)
    try:
        held = one.take(one.blocking_timeout)
    except (LockBusy, LockUnavailable) as error:
        return _answer(decorated, error)(request, error)
    try:
        try:
            # They have rolled back when the lock is lost.
            with transactions_under(held, request, databases):
                response = view()
                if databases or is_deferred(decorated.options.get("release")):
                    # A loss found at the commit is raised by Django, not in the view.
                    is_done = True
                    for some in by_client([*around, held]):
                        check_each(some)
        except BaseException as error:
            held.finish(error)
            raise
        try:
            held.finish(None)
        except LockUnavailable as error:
            # The view has done its work in time; the lease ends by itself.
            logger.error("%s", error)
    except LockLost as error:
        # The view itself may find the loss of any lock: by a check, or by a write with its fence.
        if error.key != one.key and (not is_done or error.key in [other.key for other in around]):
            raise
        if not databases:
            roll_back()
        return _answer(decorated, error)(request, error)
    return response


async def _arun_view(
    one: RedisLock,
    request: Any,
    view: Callable[[], Awaitable[Any]],
    decorated: DecoratedLock,
    databases: Sequence[str],
) -> Any:
    """Do as :func:`_run_view` for an async view, which is cancelled when its lock is lost."""
    if databases:
        # The handler does so where it sees that the view is async.
        raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")
    try:
        held = await one.atake(one.blocking_timeout)
    except (LockBusy, LockUnavailable) as error:
        return await _aanswer(decorated, request, error)
    block = CancelScope(held)
    try:
        try:
            response = await view()
        except BaseException as error:
            await block.leave(error)
            raise
        try:
            await block.leave(None)
        except LockUnavailable as error:
            logger.error("%s", error)
    except LockLost as error:
        # Another lock may be lost in the view.
        if error.key != one.key:
            raise
        return await _aanswer(decorated, request, error)
    return response


async def _aanswer(decorated: DecoratedLock, request: Any, error: LockError) -> Any:
    answer = _answer(decorated, error)
    if iscoroutinefunction(answer):
        return await answer(request, error)
    # It may ask the database, as the context processors of a page do.
    result = await sync_to_async(answer)(request, error)
    return await result if inspect.isawaitable(result) else result


def _answer(decorated: DecoratedLock, error: LockError) -> Callable[..., Any]:
    """Return the callable that answers the request; raise ``error`` where ``on_busy`` says so."""
    if not isinstance(error, LockBusy):
        logger.error("%s", error)
        return decorated.answer
    if decorated.on_busy == "raise":
        raise error
    return decorated.on_busy or decorated.answer
