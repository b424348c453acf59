"""Forty and more shapes of views, each under the lock of an order, as one URLconf.

``?then=lose`` has the view lose its lock as it runs, ``?then=service`` has it call a service that
takes another lock. Each view writes a row.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, NamedTuple

from django import forms
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from django.views.generic import FormView, TemplateView, UpdateView
from rest_framework.decorators import api_view
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import lock, locked, redis_lock
from django_setnx_lock.views import LockedViewMixin

order_lock = redis_lock("order:<pk>")
NOW: Any = {"blocking_timeout": 0}


class Shape(NamedTuple):
    """A view, and how it answers when its lock is free.

    ``rolls_back``: whether ATOMIC_REQUESTS is for it. ``is_decorated``: whether a decorator or the
    mixin locks it, and not a service. ``is_api``: whether REST framework answers.
    """

    view: Any
    status: int = 200
    rolls_back: bool = True
    is_decorated: bool = True
    is_api: bool = False


def key(pk: int) -> str:
    return f"order:{pk}"


def page(text: str) -> Any:
    return engines["django"].from_string(text)


def lose(pk: int) -> None:
    for name in (f"lock:{key(pk)}", f"lock:shop:{pk}"):
        lock(key(pk)).client.delete(name)


def service() -> None:
    with lock("stock", **NOW):
        pass


@locked("order:<pk>", **NOW)
def pay_locked(request: HttpRequest, pk: int) -> None:
    write(request, pk)


def write(request: Any, pk: int) -> None:
    """Write a row, and then do as the request asks."""
    Group.objects.create(name=f"{pk} {Group.objects.count()}")
    match request.GET.get("then"):
        case "lose":
            lose(pk)
        case "service":
            service()


async def awrite(request: HttpRequest, pk: int) -> None:
    await Group.objects.acreate(name=f"{pk} {await Group.objects.acount()}")
    match request.GET.get("then"):
        case "lose":
            lose(pk)
        case "service":
            async with lock("stock", **NOW):
                pass


def plain(request: HttpRequest, pk: int, **more: object) -> HttpResponse:
    write(request, pk)
    return HttpResponse("done")


def redirects(request: HttpRequest, pk: int) -> HttpResponse:
    write(request, pk)
    return HttpResponseRedirect("/elsewhere/")


def as_json(request: HttpRequest, pk: int) -> HttpResponse:
    write(request, pk)
    return JsonResponse({"pk": pk})


def templated(request: HttpRequest, pk: int) -> HttpResponse:
    write(request, pk)
    return TemplateResponse(request, page("order {{ pk }}"), {"pk": pk})


def streams(request: HttpRequest, pk: int) -> HttpResponseBase:
    write(request, pk)
    return StreamingHttpResponse(iter([b"do", b"ne"]))


def as_file(request: HttpRequest, pk: int) -> HttpResponseBase:
    write(request, pk)
    return FileResponse(io.BytesIO(b"done"))


def missing(request: HttpRequest, pk: int) -> HttpResponse:
    write(request, pk)
    raise Http404


def forbidden(request: HttpRequest, pk: int) -> HttpResponse:
    write(request, pk)
    raise PermissionDenied


def by_service(request: HttpRequest, pk: int) -> HttpResponse:
    with lock(key(pk), **NOW):
        return plain(request, pk)


def by_locked_function(request: HttpRequest, pk: int) -> HttpResponse:
    pay_locked(request, pk)
    return HttpResponse("done")


class Callable:
    def __call__(self, request: HttpRequest, pk: int) -> HttpResponse:
        return plain(request, pk)


class Posts(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return plain(request, pk)


@method_decorator(order_lock, name="dispatch")
class ByDispatch(Posts): ...


@method_decorator([never_cache, order_lock], name="dispatch")
class ByList(Posts): ...


@method_decorator(redis_lock("shop:<pk>"), name="dispatch")
@method_decorator(order_lock, name="dispatch")
class ByTwo(Posts): ...


@method_decorator(order_lock, name="post")
class ByNamedMethod(Posts): ...


class ByWrappedMethod(View):
    @method_decorator(order_lock)
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return plain(request, pk)


class ByMethod(View):
    @order_lock
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return plain(request, pk)


class Mixed(LockedViewMixin, Posts):
    lock_key = "order:<pk>"


class MixedByMethod(LockedViewMixin, Posts):
    def get_lock_key(self) -> list[str]:
        return [key(self.kwargs["pk"]), f"shop:{self.kwargs['pk']}"]


class Renaming(forms.Form):
    name = forms.CharField(required=False)


class Forms(LockedViewMixin, FormView):  # type: ignore[type-arg]  # is of no type as it runs
    lock_key = "order:<pk>"
    form_class = Renaming
    success_url = "/elsewhere/"

    def form_valid(self, form: Renaming) -> HttpResponse:
        write(self.request, self.kwargs["pk"])
        return super().form_valid(form)


class Updates(LockedViewMixin, UpdateView):  # type: ignore[type-arg]  # is of no type as it runs
    lock_key = "order:<pk>"
    fields = ()
    success_url = "/elsewhere/"

    def get_object(self, queryset: Any = None) -> Group:
        return Group()

    def form_valid(self, form: Any) -> HttpResponse:
        write(self.request, self.kwargs["pk"])
        return HttpResponseRedirect(self.success_url)


class Rendered(LockedViewMixin, TemplateView):
    lock_key = "order:<pk>"
    lock_until_rendered = True

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return templated(request, pk)


class Streamed(LockedViewMixin, View):
    lock_key = "order:<pk>"
    lock_until_rendered = True

    def post(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        return streams(request, pk)


class FormOfService(FormView):  # type: ignore[type-arg]  # is of no type as it runs
    form_class = Renaming
    success_url = "/elsewhere/"

    def form_valid(self, form: Renaming) -> HttpResponse:
        with lock(key(self.kwargs["pk"]), **NOW):
            write(self.request, self.kwargs["pk"])
        return super().form_valid(form)


async def aplain(request: HttpRequest, pk: int) -> HttpResponse:
    await awrite(request, pk)
    return HttpResponse("done")


async def aredirects(request: HttpRequest, pk: int) -> HttpResponse:
    await awrite(request, pk)
    return HttpResponseRedirect("/elsewhere/")


async def amissing(request: HttpRequest, pk: int) -> HttpResponse:
    await awrite(request, pk)
    raise Http404


async def astreams(request: HttpRequest, pk: int) -> HttpResponseBase:
    await awrite(request, pk)

    async def parts() -> AsyncIterator[bytes]:
        yield b"done"

    def sync_parts() -> Iterator[bytes]:
        yield b"done"

    # A server of the other kind would have to convert it.
    return StreamingHttpResponse(parts() if hasattr(request, "scope") else sync_parts())


async def by_async_service(request: HttpRequest, pk: int) -> HttpResponse:
    async with lock(key(pk), **NOW):
        return await aplain(request, pk)


class AsyncPosts(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return await aplain(request, pk)


@method_decorator(order_lock, name="dispatch")
class AsyncByDispatch(AsyncPosts): ...


@method_decorator(order_lock, name="post")
class AsyncByNamedMethod(AsyncPosts): ...


class AsyncByMethod(View):
    @order_lock
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return await aplain(request, pk)


class AsyncMixed(LockedViewMixin, AsyncPosts):
    lock_key = "order:<pk>"


def api_plain(request: Request, pk: int) -> Response:
    write(request, pk)
    return Response({"pk": pk})


def api_by_service(request: Request, pk: int) -> Response:
    with lock(key(pk), **NOW):
        return api_plain(request, pk)


class Api(APIView):
    def post(self, request: Request, pk: int) -> Response:
        return api_plain(request, pk)


@method_decorator(order_lock, name="dispatch")
class ApiByDispatch(Api): ...


class ApiByMethod(APIView):
    @order_lock
    def post(self, request: Request, pk: int) -> Response:
        return api_plain(request, pk)


class ApiGeneric(GenericAPIView[Any]):
    @method_decorator(order_lock)
    def post(self, request: Request, pk: int) -> Response:
        return api_plain(request, pk)


class ApiOrders(ViewSet):
    @order_lock
    def create(self, request: Request, pk: int) -> Response:
        return api_plain(request, pk)


class ApiMixed(LockedViewMixin, Api):
    lock_key = "order:<pk>"


def exempt(view: Any) -> Any:
    return transaction.non_atomic_requests(view)


def asynchronous(view: Any, **how: Any) -> Shape:
    return Shape(exempt(view), rolls_back=False, **how)


SHAPES = {
    "function": Shape(order_lock(plain)),
    "typed": Shape(redis_lock("order:<pk:int>")(plain)),
    "several-keys": Shape(redis_lock("order:<pk>", "shop:<pk>")(plain)),
    "callable-key": Shape(redis_lock(lambda request, pk: key(pk))(plain)),
    "two-by-a-callable": Shape(redis_lock(lambda request, pk: [key(pk), f"shop:{pk}"])(plain)),
    "methods": Shape(redis_lock("order:<pk>", methods=["POST"])(plain)),
    "waits": Shape(redis_lock("order:<pk>", blocking_timeout=0.01)(plain)),
    "shared": Shape(redis_lock("order:<pk>", shared=True)(plain)),
    "below-others": Shape(csrf_exempt(never_cache(require_POST(order_lock(plain))))),
    "above-others": Shape(order_lock(csrf_exempt(never_cache(require_POST(plain))))),
    "stacked": Shape(redis_lock("shop:<pk>")(order_lock(plain))),
    "partial": Shape(partial(order_lock(plain), shop="north")),
    "object": Shape(order_lock(Callable())),
    "exempt": Shape(exempt(order_lock(plain)), rolls_back=False),
    "redirect": Shape(order_lock(redirects), 302),
    "json": Shape(order_lock(as_json)),
    "template": Shape(order_lock(templated)),
    "streaming": Shape(order_lock(streams)),
    "file": Shape(order_lock(as_file)),
    "missing": Shape(order_lock(missing), 404),
    "forbidden": Shape(order_lock(forbidden), 403),
    "service": Shape(by_service, is_decorated=False),
    "locked-function": Shape(by_locked_function, is_decorated=False),
    "dispatch": Shape(ByDispatch.as_view()),
    "list": Shape(ByList.as_view()),
    "two-dispatches": Shape(ByTwo.as_view()),
    "named-method": Shape(ByNamedMethod.as_view()),
    "wrapped-method": Shape(ByWrappedMethod.as_view()),
    "method": Shape(ByMethod.as_view()),
    "as-view": Shape(order_lock(Posts.as_view())),
    "mixin": Shape(Mixed.as_view()),
    "mixin-by-method": Shape(MixedByMethod.as_view()),
    "form": Shape(Forms.as_view(), 302),
    "update": Shape(Updates.as_view(), 302),
    "rendered": Shape(Rendered.as_view()),
    "streamed": Shape(Streamed.as_view()),
    "form-of-service": Shape(FormOfService.as_view(), 302, is_decorated=False),
    "async": asynchronous(order_lock(aplain)),
    "async-redirect": asynchronous(order_lock(aredirects), status=302),
    "async-missing": asynchronous(order_lock(amissing), status=404),
    "async-streaming": asynchronous(order_lock(astreams)),
    "async-dispatch": asynchronous(AsyncByDispatch.as_view()),
    "async-named-method": asynchronous(AsyncByNamedMethod.as_view()),
    "async-method": asynchronous(AsyncByMethod.as_view()),
    "async-as-view": asynchronous(order_lock(AsyncPosts.as_view())),
    "async-mixin": asynchronous(AsyncMixed.as_view()),
    "async-service": asynchronous(by_async_service, is_decorated=False),
    "api-view": Shape(api_view(["POST"])(order_lock(api_plain)), is_api=True),
    "api-method": Shape(ApiByMethod.as_view(), is_api=True),
    "api-generic": Shape(ApiGeneric.as_view(), is_api=True),
    "api-viewset": Shape(ApiOrders.as_view({"post": "create"}), is_api=True),
    "api-dispatch": Shape(ApiByDispatch.as_view()),
    "api-as-view": Shape(order_lock(Api.as_view())),
    "api-mixin": Shape(ApiMixed.as_view()),
    "api-service": Shape(api_view(["POST"])(api_by_service), is_decorated=False, is_api=True),
}
urlpatterns = [path(f"{name}/<int:pk>/", shape.view) for name, shape in SHAPES.items()]
