"""The exception handler of Django REST framework that answers busy, lost and unavailable locks."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import exception_handler as handler

from ..core.errors import LockError
from ..middleware import ANSWERED, noted
from ..views import failure_of


class LockFailed(APIException):
    """A lock that was busy (409), lost or unavailable (503). ``wait``: when to try again."""

    def __init__(self, error: LockError) -> None:
        failure = failure_of(error)
        self.status_code, self.wait = failure.status, failure.retry_after
        super().__init__(failure.detail, failure.code)


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Answer LockBusy with 409, LockUnavailable and LockLost with 503, in the API's format.

    Name it in ``REST_FRAMEWORK["EXCEPTION_HANDLER"]``, or call it from a handler of your own. Every
    other exception is left to REST framework's. The transaction of ATOMIC_REQUESTS is rolled back.
    """
    if not isinstance(exc, ANSWERED):
        return handler(exc, context)
    response: Response = noted(exc, handler(LockFailed(exc), context), "REST framework")
    return response
