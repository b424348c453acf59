"""What a locked view answers when it cannot run, and ``LockedViewMixin`` for class-based views."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from .arguments import http_request, is_async
from .core.errors import LockBusy, LockError, LockLost
from .decorators import ViewLock, view_key
from .key_template import KeyTemplate
from .transactions import check_all, leave_to_lock

if TYPE_CHECKING:
    from django.http import HttpResponseBase
    from django.views import View

    from .core.locks.layered import LockHandle
    from .decorators import ViewOptions

    _View = View
else:
    _View = object

logger = logging.getLogger("django_setnx_lock.views")

_HTML = "text/html"
_JSON = "application/json"
# Seconds. Long enough for a primary to be back after most failovers' first moments.
_RETRY_UNAVAILABLE = 5
# The same for a busy lock.
_RETRY_BUSY = 2


class LockedRequest(HttpRequest):
    """For the annotation of a view under ``@redis_lock``: a request with a ``lock``."""

    lock: LockHandle


class Failure(NamedTuple):
    """What clients are told of an error; neither the key nor the holder is part of it."""

    status: int
    code: str
    detail: str
    retry_after: int | None
    template: str


def failure_of(error: LockError) -> Failure:
    """Return what clients are told of ``error``. Of a lost lock, nobody is asked to try again."""
    if isinstance(error, LockBusy):
        text = _("Somebody else is working on this right now. Please try again in a moment.")
        return Failure(409, "lock_busy", text, retry_after(error), "busy")
    if isinstance(error, LockLost):
        text = _("This may have been done or not. Please check before you try again.")
        return Failure(503, "lock_lost", text, None, "unavailable")
    text = _("This cannot be done at the moment. Please try again later.")
    return Failure(503, "lock_unavailable", text, _RETRY_UNAVAILABLE, "unavailable")


def retry_after(error: LockBusy) -> int:
    """Return in how many whole seconds to try again for the lock of ``error``: 1 or 2.

    It is what is left of the lease if that is less than 2.
    """
    left = _RETRY_BUSY if error.remaining is None else min(_RETRY_BUSY, error.remaining)
    return max(math.ceil(left), 1)


def lock_failure(request: Any, error: LockError) -> HttpResponse:
    """Return 409 for LockBusy, else 503, as JSON or as a page: the default ``FAILURE_VIEW``.

    The page is the template ``django_setnx_lock/busy.html`` or ``unavailable.html``, which gets
    ``detail`` and ``retry_after``: seconds, or None when the lock was lost as the view ran.
    """
    status, _code, detail, seconds, name = failure_of(error)
    body = {"detail": detail, "retry_after": seconds}
    said = {name: value for name, value in body.items() if value is not None}
    response: HttpResponse = JsonResponse(said, status=status)
    if not _prefers_json(request):
        template, context = f"django_setnx_lock/{name}.html", {**body, "stylesheet": _stylesheet()}
        try:
            page = render_to_string(template, context, http_request(request))
            response = HttpResponse(page, status=status)
        except TemplateDoesNotExist as missing:
            # The project has no template engine to find it.
            if missing.args[0] != template:
                raise
    if seconds is not None:
        response["Retry-After"] = str(seconds)
    response["Cache-Control"] = "no-store"
    patch_vary_headers(response, ["Accept"])
    return response


def _stylesheet() -> str | None:
    """Return the address of the pages' stylesheet, or None where nothing serves it."""
    if not apps.is_installed("django.contrib.staticfiles"):
        return None
    # A style within the pages would be blocked by a strict Content-Security-Policy.
    try:
        return static("django_setnx_lock/pages.css")
    except (ImproperlyConfigured, ValueError):
        # There is no STATIC_URL, or its manifest was not made yet, as in tests.
        return None


def _prefers_json(request: Any) -> bool:
    # REST framework has settled it already, when the request came as far as the handler.
    settled = getattr(request, "accepted_media_type", None)
    if settled:
        return not str(settled).startswith(_HTML)
    asked = http_request(request)
    return asked is not None and asked.get_preferred_type([_HTML, _JSON]) == _JSON


class LockedViewMixin(_View):
    """Run a class-based view under a lock: name it before the view class.

    ``lock_key``: a key template over the arguments of the URL, or several; ``lock_methods``: the
    methods that run under it, None for all; ``lock_options``: what else ``@redis_lock`` takes.
    ``self.request.lock`` is the handle, ``form_valid()`` runs under the lock. With
    ``lock_until_rendered`` a template response is rendered under it, too, and a response that
    streams is sent under it.
    """

    lock_key: str | Sequence[str] = ()
    lock_methods: Iterable[str] | None = ("POST", "PUT", "PATCH", "DELETE")
    lock_options: ClassVar[ViewOptions] = {}
    lock_until_rendered = False

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Return the view, whose transactions the lock begins under ATOMIC_REQUESTS."""
        if cls.get_lock_key is LockedViewMixin.get_lock_key and not cls.lock_key:
            raise TypeError(f'{cls.__name__} needs a key: write lock_key = "order:<pk>"')
        view = super().as_view(**initkwargs)
        leave_to_lock(view)
        if cls.lock_key:
            keys = [cls.lock_key] if isinstance(cls.lock_key, str) else cls.lock_key
            ViewLock(keys, methods=cls.lock_methods, **cls.lock_options).be_carried_by(view)
        return view

    def get_lock_key(self) -> str | Sequence[str]:
        """Return the key of this request, or several: those of ``lock_key``."""
        keys = [self.lock_key] if isinstance(self.lock_key, str) else self.lock_key
        return [view_key(KeyTemplate(key), self.kwargs, self.request) for key in keys]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Run the method of the request under the lock."""
        keys = [lambda *args, **kwargs: self.get_lock_key()]
        lock = ViewLock(keys, methods=self.lock_methods, **self.lock_options)
        view = super().dispatch
        if self.lock_until_rendered and lock.applies_to(request):
            view = _with_whole_response(view)
        return lock.decorate(view)(request, *args, **kwargs)


def _with_whole_response(view: Any) -> Any:
    """Return ``view`` with its response rendered by it, or sent under the lock of the request."""

    def whole(request: Any, response: Any) -> Any:
        if callable(getattr(response, "render", None)):
            return response.render()
        if response.streaming:
            check_all([request.lock])
            _hold_until_closed(request.lock, response)
        return response

    @wraps(view)
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        return whole(request, view(request, *args, **kwargs))

    @wraps(view)
    async def awrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(whole)(request, await view(request, *args, **kwargs))

    return awrapper if is_async(view) else wrapper


def _hold_until_closed(held: LockHandle, response: Any) -> None:
    """Have ``held`` let go when ``response`` is closed, by another thread, perhaps."""
    held.handover()
    # It may be closed again.
    close, releases = response.close, [held.detach()]

    def end(release: Callable[[], None]) -> None:
        try:
            release()
        except LockError as error:
            logger.error("%s", error)

    def close_and_let_go() -> None:
        try:
            close()
        finally:
            # Django closes it in a thread, but its test client in the event loop.
            with ThreadPoolExecutor(1) as thread:
                while releases:
                    thread.submit(end, releases.pop())

    response.close = close_and_let_go
