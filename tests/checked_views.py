"""Locked views of every kind, and what a check says of routes to them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import redis_lock

order_lock = redis_lock("order:<pk>")


def found(number: str, *routes: Any) -> list[CheckMessage]:
    """Return what the check ``number`` says of a URLconf of these ``routes``."""
    with override_settings(ROOT_URLCONF=routes):
        return [
            one for one in run_checks(tags=[Tags.urls]) if one.id == f"django_setnx_lock.{number}"
        ]


@order_lock
def anything(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


@order_lock
def pk_or_none(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    return HttpResponse()


@order_lock
def pk_or_seven(request: HttpRequest, pk: int = 7) -> HttpResponse:
    return HttpResponse()


@order_lock
def pk_needed(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@method_decorator(order_lock, name="dispatch")
class ByDispatch(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


@method_decorator([never_cache, order_lock], name="post")
class ByNamedMethod(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class ByMethod(View):
    @order_lock
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class Unlocked(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class ApiMethod(APIView):
    @order_lock
    def post(self, request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class Orders(ViewSet):
    @action(detail=True, methods=["post"])
    @order_lock
    def pay(self, request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse()

    def list(self, request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


def plain(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


VIEWS: dict[str, Any] = {
    "function": anything,
    "csrf_exempt": csrf_exempt(anything),
    "partial": partial(anything, shop="north"),
    "dispatch": ByDispatch.as_view(),
    "named method": ByNamedMethod.as_view(),
    "method": ByMethod.as_view(),
    "as_view": order_lock(Unlocked.as_view()),
    "api method": ApiMethod.as_view(),
    "viewset": Orders.as_view({"post": "pay"}),
    "decorated viewset": order_lock(Orders.as_view({"get": "list"})),
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
