"""What a locked view answers when it could not run under its lock."""

from __future__ import annotations

import math
from typing import Any

from django.http import HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from .conf import get_config
from .core.errors import LockBusy, LockError, LockLost
from .view_request import http_request

_HTML = "text/html"
_JSON = "application/json"
# Seconds. Long enough for a primary to be back after most failovers' first moments.
_RETRY_UNAVAILABLE = 5


def busy(request: Any, error: LockBusy, *, timeout: float | None = None) -> HttpResponse:
    """409 with Retry-After. It says nothing of the key or the holder.

    ``timeout``: the seconds to wait for a holder whose lease never ends (None: the setting
    ``TIMEOUT``). The page is the template ``django_setnx_lock/busy.html``, which gets
    ``retry_after`` in seconds.
    """
    detail, retry_after = say_busy(error, timeout)
    return _answer(request, 409, "django_setnx_lock/busy.html", detail, retry_after)


def unavailable(request: Any, error: LockError) -> HttpResponse:
    """503 for LockUnavailable, with Retry-After, and for LockLost.

    The view has run when its lock was lost, so that answer asks nobody to try again. The page
    is the template ``django_setnx_lock/unavailable.html``, which gets ``retry_after`` in
    seconds, None when lost.
    """
    detail, retry_after = say_unavailable(error)
    return _answer(request, 503, "django_setnx_lock/unavailable.html", detail, retry_after)


def say_busy(error: LockBusy, timeout: float | None = None) -> tuple[str, int]:
    """What :func:`busy` says, and in how many seconds to try again."""
    left = error.remaining
    if left is None:
        left = get_config()["TIMEOUT"] if timeout is None else timeout
    detail = _("Somebody else is working on this right now. Please try again in a moment.")
    return detail, max(math.ceil(left), 1)


def say_unavailable(error: LockError) -> tuple[str, int | None]:
    """What :func:`unavailable` says, and in how many seconds to try again, if at all."""
    if isinstance(error, LockLost):
        return _("This may have been done or not. Please check before you try again."), None
    return _("This cannot be done at the moment. Please try again later."), _RETRY_UNAVAILABLE


def _answer(
    request: Any, status: int, template: str, detail: str, retry_after: int | None
) -> HttpResponse:
    body: dict[str, Any] = {"detail": detail}
    if retry_after is not None:
        body["retry_after"] = retry_after
    response: HttpResponse | None = None
    if not _prefers_json(request):
        response = _page(request, status, template, body | {"retry_after": retry_after})
    if response is None:
        response = JsonResponse(body, status=status)
    if retry_after is not None:
        response["Retry-After"] = str(retry_after)
    response["Cache-Control"] = "no-store"
    patch_vary_headers(response, ["Accept"])
    return response


def _page(request: Any, status: int, template: str, context: dict[str, Any]) -> HttpResponse | None:
    """The template, or None in a project that has no template engine to find it."""
    try:
        return HttpResponse(
            render_to_string(template, context, http_request(request)), status=status
        )
    except TemplateDoesNotExist as error:
        if error.args[0] != template:
            raise
        return None


def _prefers_json(request: Any) -> bool:
    # REST framework has settled it already, when the request came as far as the handler.
    settled = getattr(request, "accepted_media_type", None)
    if settled:
        return not str(settled).startswith(_HTML)
    asked = http_request(request)
    return asked is not None and asked.get_preferred_type([_HTML, _JSON]) == _JSON
