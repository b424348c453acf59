"""``LockMiddleware``: a lock that is busy, lost or unavailable in a view is answered, not a 500."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.handlers.base import BaseHandler
from django.urls import get_callable

from .conf import get_config
from .core.errors import LockBusy, LockLost, LockUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase

logger = logging.getLogger("django_setnx_lock.views")

# What is answered, wherever in a view it is raised.
ANSWERED = (LockBusy, LockUnavailable, LockLost)


class LockMiddleware:
    """Answer LockBusy with 409, LockUnavailable and LockLost with 503, raised anywhere in a view.

    The setting ``FAILURE_VIEW`` makes the response. ATOMIC_REQUESTS has rolled back by then.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Pass the request on. What this returns is awaited under ASGI."""
        return self.get_response(request)

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Return the answer to ``exception``; None if it is nothing of a lock."""
        return failed(request, exception) if isinstance(exception, ANSWERED) else None


def failed(request: Any, error: LockBusy | LockUnavailable | LockLost) -> HttpResponseBase:
    """Return what the setting ``FAILURE_VIEW`` answers to ``error``."""
    respond = get_callable(get_config()["FAILURE_VIEW"])
    response: HttpResponseBase = noted(error, respond(request, error), "FAILURE_VIEW")
    return response


def noted(error: Exception, response: Any, name: str) -> Any:
    """Return the ``response`` of ``name`` to ``error``, logged here: once, and without a mail."""
    BaseHandler().check_response(response, None, name)
    if not isinstance(error, LockBusy):
        logger.error("%s", error)
    if response.status_code >= 500:
        # Or Django logs the response at ERROR, which is mailed to ADMINS.
        response._has_been_logged = True
    return response
