"""``@redis_lock("order:<pk>")`` for views, which answer; ``@locked(...)`` for the rest, raises."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.core.exceptions import PermissionDenied, SynchronousOnlyOperation
from django.db.transaction import atomic
from django.http import Http404

from .arguments import (
    arguments_in,
    dotted_name,
    from_request_on,
    http_request,
    is_async,
    known_user,
    names_in,
    own_signature,
    refuse_undecoratable,
    signature_of,
)
from .core.errors import LockBusy, LockLost, LockUnavailable
from .key_template import KeyTemplate, NotCanonical
from .locks import make_lock
from .middleware import failed, noted
from .options import lock_options
from .transactions import (
    check_all,
    is_left_to_lock,
    is_rolled_back_by_an_error,
    leave_to_lock,
    left_databases,
)

if TYPE_CHECKING:
    from django.http import HttpResponseBase
    from typing_extensions import Unpack

    from .core.locks.layered import LockHandle, RedisLock
    from .core.locks.several import MultiLock, MultiLockHandle
    from .options import DoorOptions

    # Awaitable for async views only.
    _Response = HttpResponseBase | Awaitable[HttpResponseBase]
    OnBusy = Callable[[Any, LockBusy], _Response]
    Key = str | Callable[..., str | Sequence[str]]
    Handle = LockHandle | MultiLockHandle

    class ViewOptions(DoorOptions, total=False):
        on_busy: OnBusy | None


logger = logging.getLogger("django_setnx_lock.views")

_P = ParamSpec("_P")
_R = TypeVar("_R")
# Of a request: the handles of the locks that it holds, the innermost last.
_HELD = "_setnx_lock_held"


def redis_lock(
    *keys: Key,
    methods: Iterable[str] | None = None,
    on_busy: OnBusy | None = None,
    **options: Unpack[DoorOptions],
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Run a view under the lock that its arguments name; ``request.lock`` is the handle.

    ``keys``: key templates, or callables ``(request, *args, **kwargs)`` that give a key or
    several. ``<name>`` in a template is an argument of the view, ``<user.pk>`` an attribute of an
    argument or of the request, and ``<pk:int>`` an argument of type ``int``, ``uuid`` or ``str``.
    A text that is not written as ``str()`` writes the value of its type is answered with 404, and a
    visitor who has not logged in with 403 where the key names the user. Of several keys, all are
    taken or none.

    ``methods``: the HTTP methods that run under the lock (None: all). ``options``: those of
    :class:`LockOptions`, with a ``blocking_timeout`` of 0 seconds.

    A busy lock is answered with 409, and a Redis that cannot say with 503, by the setting
    ``FAILURE_VIEW``. ``on_busy`` replaces the former: ``(request, error) -> response``, which may
    be async. A lock that was lost on the way rolls the transaction of ATOMIC_REQUESTS back, and is
    answered with 503; in a transaction that others have begun, it raises LockLost. All else that
    the view raises comes out. An async view is cancelled when it has lost its lock.

    Raises ValueError or TypeError at decoration for a malformed template, for a template that names
    what the view does not take, for bad options, and for classes and generators.
    """
    return ViewLock(keys, methods=methods, on_busy=on_busy, **options).decorate


def locked(
    *keys: Key, **options: Unpack[DoorOptions]
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Run a function, a method or a task under the lock that its arguments name.

    ``keys``: key templates over the arguments, ``invoice:<customer.pk>``, or callables with the
    arguments of the call that give a key or several. ``options``: those of
    :class:`LockOptions`.

    A call raises LockBusy, LockUnavailable and LockLost as ``with lock(...)`` does, and ValueError
    for a text that is not written as ``str()`` writes the value of its type. A coroutine function
    waits in its event loop, and is cancelled when its lock is lost.

    Raises ValueError or TypeError at decoration as :func:`redis_lock`.
    """
    return DecoratedLock(keys, **options).decorate


class DecoratedLock:
    """What ``@locked`` was given. Decorated callables carry it, for the system checks."""

    decorator = "locked"
    _kind = "function"
    # Whether a template may name what the request has.
    _names_request = False

    def __init__(self, keys: Sequence[Key], **options: Unpack[DoorOptions]) -> None:
        if not keys:
            raise TypeError(f'{self.decorator} needs a key: write {self.decorator}("order:<pk>")')
        self.options = lock_options(options)
        self.keys = [key if callable(key) else KeyTemplate(key) for key in keys]
        for key in self.keys:
            if iscoroutinefunction(key):
                raise TypeError(f"a callable that gives a key must not be async, as {key!r} is")

    @property
    def templates(self) -> list[KeyTemplate]:
        """The keys that are templates."""
        return [key for key in self.keys if isinstance(key, KeyTemplate)]

    def decorate(self, func: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return ``func`` under the lock."""
        lock_of = self.lock_of(func)

        @wraps(func)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with lock_of(args, kwargs):
                return _call(func, *args, **kwargs)

        @wraps(func)
        async def awrapper(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            async with await _in_thread_if_it_blocks(lock_of, args, kwargs):
                return await _acall(func, *args, **kwargs)

        made = cast("Callable[_P, _R]", awrapper) if is_async(func) else wrapper
        self.be_carried_by(made)
        return made

    def lock_of(self, func: Callable[..., Any]) -> Callable[..., RedisLock | MultiLock]:
        """Return what gives the lock of a call of ``func``, with what is said ``about`` that alone.

        Raises TypeError or ValueError for what cannot be decorated.
        """
        refuse_undecoratable(func, self.decorator)
        signature, name = signature_of(func), dotted_name(func)
        self._refuse_misfit(func, signature)
        options = replace(self.options, label=self.options.label or f"{self._kind} {name}")

        def arguments_of(args: Any, kwargs: Any) -> dict[str, Any]:
            try:
                return arguments_in(signature, args, kwargs)
            except TypeError:
                # A decorator in between takes other arguments than what it wraps.
                return arguments_in(own_signature(func), args, kwargs)

        def lock_of(
            args: Any, kwargs: Any, request: Any = None, **about: Any
        ) -> RedisLock | MultiLock:
            keys: list[Any] = []
            for key in self.keys:
                made: Any
                if not isinstance(key, KeyTemplate):
                    made = key(*(from_request_on(func, args) if request else args), **kwargs)
                elif request is None:
                    made = key.resolve(arguments_of(args, kwargs))
                else:
                    made = view_key(key, arguments_of(args, kwargs), request)
                keys += made if isinstance(made, (list, tuple)) else [made]
            if not keys or not all(isinstance(key, str) and key for key in keys):
                raise TypeError(f"the keys of {name} are {keys!r}: give a str, or several")
            return make_lock(keys, replace(options, **about), user=known_user(request))

        return lock_of

    def be_carried_by(self, wrapper: object) -> None:
        """Have the system checks find this at ``wrapper``."""
        # A name of its own: decorators of decorators merge the __dict__ of what they wrap.
        setattr(wrapper, f"_redis_lock_{id(self):x}", self)

    def _refuse_misfit(self, func: Callable[..., Any], signature: inspect.Signature) -> None:
        names = names_in(signature)
        if names is None:
            return
        for template in self.templates:
            for field in template.fields:
                root, dot, _ = field.partition(".")
                if root not in names and not (dot and self._names_request):
                    raise ValueError(
                        f"the key template {template.text!r} names <{field}>, but "
                        f"{dotted_name(func)} takes {', '.join(names) or 'no arguments'}"
                    )


class ViewLock(DecoratedLock):
    """What ``@redis_lock`` was given."""

    decorator = "redis_lock"
    _kind = "view"
    _names_request = True

    def __init__(
        self,
        keys: Sequence[Key],
        *,
        methods: Iterable[str] | None = None,
        on_busy: OnBusy | None = None,
        **options: Unpack[DoorOptions],
    ) -> None:
        if on_busy is not None and not callable(on_busy):
            raise TypeError(f"on_busy is a callable (request, error) -> response, not {on_busy!r}")
        if isinstance(methods, str):
            raise TypeError(f"methods are several: write methods=[{methods!r}]")
        options.setdefault("blocking_timeout", 0)
        super().__init__(keys, **options)
        self.methods = None if methods is None else {method.upper() for method in methods}
        self._on_busy: Any = async_to_sync(on_busy) if iscoroutinefunction(on_busy) else on_busy

    def decorate(self, func: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return the view ``func`` under the lock."""
        lock_of = self.lock_of(func)
        is_innermost = not is_left_to_lock(func)

        @wraps(func)
        def view(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            request = from_request_on(func, args)[0]
            databases = left_databases(http_request(request), view) if is_innermost else []
            run = partial(_call, func, *args, **kwargs)
            if self.applies_to(request):
                return self._run(lock_of(args, kwargs, request), request, run, databases)
            for alias in databases:
                run = atomic(using=alias)(run)
            return run()

        @wraps(func)
        async def aview(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            request = from_request_on(func, args)[0]
            if left_databases(http_request(request), aview):
                # As Django's handler does, which leaves them to the lock.
                raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")
            run = partial(_acall, func, *args, **kwargs)
            if not self.applies_to(request):
                return await run()
            lock = await _in_thread_if_it_blocks(lock_of, args, kwargs, request)
            return await self._arun(lock, request, run)

        wrapper: Any = aview if is_async(func) else view
        self.be_carried_by(wrapper)
        leave_to_lock(wrapper)
        return cast("Callable[_P, _R]", wrapper)

    def applies_to(self, request: Any) -> bool:
        """Return whether ``request`` runs under the lock, by its method."""
        return self.methods is None or request.method in self.methods

    def _run(
        self,
        lock: RedisLock | MultiLock,
        request: Any,
        view: Callable[[], Any],
        databases: Sequence[str],
    ) -> Any:
        """Return the response of ``view()``, run under the lock, or the answer in its place."""
        try:
            held = lock.take()
        except (LockBusy, LockUnavailable) as error:
            return self._answer(request, error)
        try:
            with ExitStack() as stack:
                stack.push(partial(let_go, held))
                around = stack.enter_context(_request_lock(request, held))
                for alias in databases:
                    stack.enter_context(atomic(using=alias))
                response = view()
                if databases:
                    check_all(around)
                return response
        except LockLost as error:
            # What others have begun is to be rolled back, too.
            if not _is_of(error, lock) or is_rolled_back_by_an_error():
                raise
            return self._answer(request, error)

    async def _arun(self, lock: Any, request: Any, view: Callable[[], Awaitable[Any]]) -> Any:
        """Do as :meth:`_run` for an async view, which is cancelled when its lock is lost."""
        response = None
        try:
            async with AsyncExitStack() as stack:
                try:
                    held = await stack.enter_async_context(lock)
                except (LockBusy, LockUnavailable) as error:
                    # It may ask the database, as the context processors of a page do.
                    return await sync_to_async(self._answer)(request, error)
                stack.enter_context(_request_lock(request, held))
                response = await view()
        except LockLost as error:
            if not _is_of(error, lock):
                raise
            return await sync_to_async(self._answer)(request, error)
        except LockUnavailable as error:
            if response is None:
                raise
            logger.error("%s", error)
        return response

    def _answer(self, request: Any, error: LockBusy | LockUnavailable | LockLost) -> Any:
        if isinstance(error, LockBusy) and self._on_busy is not None:
            return noted(error, self._on_busy(request, error), "on_busy")
        if http_request(request) is not request:
            # REST framework's exception handler answers in the format that was asked for.
            raise error
        return failed(request, error)


def view_key(template: KeyTemplate, arguments: Mapping[str, Any], request: Any) -> str:
    """Return the key that ``template`` makes of a view's ``arguments`` and its ``request``.

    Raises Http404 for a text that is not the one spelling of its value, and PermissionDenied for
    the user of a visitor who has not logged in.
    """
    values = {**arguments}
    for field in template.fields:
        root, dot, _ = field.partition(".")
        if dot and root not in values and (root == "request" or hasattr(request, root)):
            values[root] = request if root == "request" else getattr(request, root)
        if field.startswith(("user.", "request.user.")):
            user = values.get("user", getattr(request, "user", None))
            if getattr(user, "is_anonymous", False):
                raise PermissionDenied(f"<{field}> of the key {template.text!r}: nobody logged in")
    try:
        return template.resolve(values)
    except NotCanonical as error:
        raise Http404(str(error)) from error


@contextmanager
def _request_lock(request: Any, held: Handle) -> Iterator[Sequence[Handle]]:
    """Have ``held`` as ``request.lock`` for a block; give the handles of all locks around, too."""
    http: Any = http_request(request)
    before: Sequence[Handle] = vars(http).get(_HELD, ())
    around = (*before, held)
    setattr(http, _HELD, around)
    http.lock = held
    try:
        yield around
    finally:
        setattr(http, _HELD, before)
        if before:
            http.lock = before[-1]
        else:
            del http.lock


def let_go(held: Handle, kind: object, error: BaseException | None, traceback: object) -> None:
    """Let ``held`` go at the end of a block, where ``error`` is on its way."""
    try:
        held.__exit__(kind, error, traceback)
    except LockUnavailable as failure:
        # The work was done in time; the lease ends by itself.
        logger.error("%s", failure)


def _is_of(error: LockLost, lock: RedisLock | MultiLock) -> bool:
    """Return whether ``error`` is of ``lock``: the view may lose others, too."""
    return error.key in getattr(lock, "keys", (lock.key,))


async def _in_thread_if_it_blocks(get: Callable[..., _R], *args: Any) -> _R:
    """Return ``get(*args)``; of a user, for instance, who has not been looked up yet."""
    try:
        return get(*args)
    except SynchronousOnlyOperation:
        return await sync_to_async(get)(*args)


def _call(func: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    result = func(*args, **kwargs)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            f"{dotted_name(func)} gives a coroutine but is no coroutine function: mark it with "
            "inspect.markcoroutinefunction(), or asgiref's before Python 3.12"
        )
    return result


async def _acall(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = func(*args, **kwargs)
    # A view of REST framework may be marked async and answer at once.
    return await result if inspect.isawaitable(result) else result


def options_of(func: Any) -> list[DecoratedLock]:
    """Return the locks that ``func`` is decorated with, also below other decorators."""
    return [one for one in getattr(func, "__dict__", {}).values() if isinstance(one, DecoratedLock)]
