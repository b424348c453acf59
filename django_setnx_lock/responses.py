"""The answers of a locked view that could not run under its lock."""

from __future__ import annotations

import math
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext_lazy as _

from .arguments import http_request
from .core.errors import LockBusy, LockError, LockLost

# What the answers say.
BUSY = _("Somebody else is working on this right now. Please try again in a moment.")
UNAVAILABLE = _("This cannot be done at the moment. Please try again later.")
LOST = _("This may have been done or not. Please check before you try again.")

_HTML = "text/html"
_JSON = "application/json"
# Seconds. Long enough for a primary to be back after most failovers' first moments.
_RETRY_UNAVAILABLE = 5
# The same for a busy lock.
_RETRY_BUSY = 2


def answer(request: Any, error: LockError) -> HttpResponse:
    """Return what :func:`busy` or :func:`unavailable` does."""
    return busy(request, error) if isinstance(error, LockBusy) else unavailable(request, error)


def busy(request: Any, error: LockBusy) -> HttpResponse:
    """Return 409 with :func:`retry_after`. It tells neither the key nor the holder.

    The page is the template ``django_setnx_lock/busy.html``, which gets ``retry_after`` in
    seconds.
    """
    return _answer(request, 409, "django_setnx_lock/busy.html", str(BUSY), retry_after(error))


def unavailable(request: Any, error: LockError) -> HttpResponse:
    """Return 503 for LockUnavailable, with Retry-After, and for LockLost.

    The view has run when its lock was lost, so that answer asks nobody to try again. The page
    is the template ``django_setnx_lock/unavailable.html``, which gets ``retry_after`` in
    seconds, None when lost.
    """
    return _answer(request, 503, "django_setnx_lock/unavailable.html", *say_unavailable(error))


def retry_after(error: LockBusy) -> int:
    """Return in how many whole seconds to try again for the lock of ``error``: 1 or 2.

    It is what is left of the lease if that is less than 2.
    """
    left = _RETRY_BUSY if error.remaining is None else min(_RETRY_BUSY, error.remaining)
    return max(math.ceil(left), 1)


def say_unavailable(error: LockError) -> tuple[str, int | None]:
    """Return what :func:`unavailable` says, and in how many seconds to try again, if at all."""
    if isinstance(error, LockLost):
        return str(LOST), None
    return str(UNAVAILABLE), _RETRY_UNAVAILABLE


def _answer(
    request: Any, status: int, template: str, detail: str, seconds: int | None
) -> HttpResponse:
    body = {"detail": detail, "retry_after": seconds}
    said = {name: value for name, value in body.items() if value is not None}
    response: HttpResponse = JsonResponse(said, status=status)
    if not _prefers_json(request):
        context = {**body, "stylesheet": _stylesheet()}
        try:
            page = render_to_string(template, context, http_request(request))
            response = HttpResponse(page, status=status)
        except TemplateDoesNotExist as error:
            # The project has no template engine to find it.
            if error.args[0] != template:
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
