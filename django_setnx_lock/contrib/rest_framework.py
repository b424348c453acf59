"""``redis_lock`` for views of Django REST framework, which answer in the API's own error format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from django.http import HttpResponse
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from .. import decorators, responses
from ..core.errors import LockBusy, LockError

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Busy(APIException):
    """409: somebody else holds the lock. ``wait``: in how many seconds to try again."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "lock_busy"

    def __init__(self, error: LockBusy) -> None:
        self.wait = responses.retry_after(error)
        super().__init__(responses.BUSY)


class Unavailable(APIException):
    """503: Redis cannot say, or the lock was lost while the view ran, and then ``wait`` is None."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "lock_unavailable"

    def __init__(self, error: LockError) -> None:
        detail, self.wait = responses.say_unavailable(error)
        super().__init__(detail)


def redis_lock(template: str, **options: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Lock as :func:`django_setnx_lock.redis_lock` does what REST framework calls.

    That is below ``@api_view`` and ``@action``, and on methods of ``APIView``, generics and
    viewsets. :class:`Busy` and :class:`Unavailable` are raised there instead of answered, so
    the project's ``EXCEPTION_HANDLER`` and the renderer that was negotiated make the answer;
    ``Retry-After`` is set by REST framework's own. Elsewhere, as around ``as_view()`` or on
    ``dispatch``, where REST framework has not begun yet or handles no exceptions, it answers as
    ever. ``on_busy`` replaces the answer to a busy lock.
    """
    return decorators.redis_lock(template, **{"_answer": _answer, **options})


def _answer(request: Any, error: LockError) -> HttpResponse:
    if isinstance(request, Request):
        raise Busy(error) if isinstance(error, LockBusy) else Unavailable(error) from error
    return responses.answer(request, error)
