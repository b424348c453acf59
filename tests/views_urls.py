"""Every kind of locked view on one order, each telling whether it ran under the lock."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action, api_view
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import lock, redis_lock
from tests.racing import stay_inside

order_lock = redis_lock("order:<pk>")


def seen(pk: int) -> str:
    return "locked" if lock(f"order:{pk}").locked() else "open"


@order_lock
def by_function(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse(seen(pk))


@redis_lock("order:<pk>")
def by_default(request: HttpRequest, pk: int = 42) -> HttpResponse:
    return HttpResponse(seen(pk))


@method_decorator(order_lock, name="dispatch")
class ByDispatch(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(seen(pk))


@method_decorator(order_lock, name="post")
class ByNamedMethod(View):
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(seen(pk))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse(seen(kwargs["pk"]))


class ByWrappedMethod(View):
    @method_decorator(order_lock)
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(seen(pk))


class ByMethod(View):
    @order_lock
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(seen(pk))


class Unlocked(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(seen(pk))


@api_view(["POST"])
@order_lock
def by_api_view(request: Request, pk: int) -> Response:
    return Response(seen(pk))


class ApiUnlocked(APIView):
    def post(self, request: Request, pk: int) -> Response:
        return Response(seen(pk))


class ApiView(APIView):
    renderer_classes = (JSONRenderer,)

    @order_lock
    def post(self, request: Request, pk: int) -> Response:
        return Response(seen(pk))


@method_decorator(order_lock, name="dispatch")
class ApiDispatch(APIView):
    def post(self, request: Request, pk: int) -> Response:
        return Response(seen(pk))


class Orders(ViewSet):
    @action(detail=True, methods=["post"])
    @order_lock
    def pay(self, request: Request, pk: str) -> Response:
        return Response(seen(int(pk)))


@csrf_exempt
def stays(request: HttpRequest, pk: int) -> HttpResponse:
    """Be inside for as long as others come."""
    stay_inside()
    return HttpResponse("paid")


router = SimpleRouter()
router.register("viewset", Orders, basename="order")

urlpatterns = [
    path("racing/<int:pk>/", csrf_exempt(order_lock(stays))),
    path("racing-unlocked/<int:pk>/", stays),
    path("function/<int:pk>/", by_function),
    path("default/", by_default),
    path("default-kwargs/", by_function, {"pk": 42}),
    path("include/<int:pk>/", include([path("function/", by_function)])),
    path("dispatch/<int:pk>/", ByDispatch.as_view()),
    path("named-method/<int:pk>/", ByNamedMethod.as_view()),
    path("wrapped-method/<int:pk>/", ByWrappedMethod.as_view()),
    path("method/<int:pk>/", ByMethod.as_view()),
    path("as-view/<int:pk>/", order_lock(Unlocked.as_view())),
    path("api-view/<int:pk>/", by_api_view),
    path("api-as-view/<int:pk>/", order_lock(ApiUnlocked.as_view())),
    path("api-method/<int:pk>/", ApiView.as_view()),
    path("api-dispatch/<int:pk>/", ApiDispatch.as_view()),
    path("", include(router.urls)),
]
ROUTES = [
    "function/42/",
    "default/",
    "default-kwargs/",
    "include/42/function/",
    "dispatch/42/",
    "named-method/42/",
    "wrapped-method/42/",
    "method/42/",
    "as-view/42/",
    "api-view/42/",
    "api-as-view/42/",
    "api-method/42/",
    "api-dispatch/42/",
    "viewset/42/pay/",
]
