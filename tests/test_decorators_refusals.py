from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from django_setnx_lock import redis_lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


@pytest.mark.parametrize("template", ["", "order:<pk", "order:<>", "<a><b>", "order:<1>"])
def test_a_malformed_template_is_refused_at_once(template: str) -> None:
    with pytest.raises(ValueError, match=r"template|key"):
        redis_lock(template)


def test_a_decorator_without_its_template_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a key template is a str such as .*, not function"):
        redis_lock(lambda: None)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("timeout", [0, -1, True, float("nan")])
def test_a_bad_lease_is_refused_at_once(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        redis_lock("order:<pk>", timeout=timeout)


@pytest.mark.parametrize("wait", [-1, True, float("inf")])
def test_a_bad_wait_is_refused_at_once(wait: float) -> None:
    with pytest.raises(ValueError, match="blocking_timeout"):
        redis_lock("order:<pk>", blocking_timeout=wait)


@pytest.mark.parametrize("max_hold", [0, -1, True, float("nan")])
def test_a_bad_max_hold_is_refused_at_once(max_hold: float) -> None:
    with pytest.raises(ValueError, match="max_hold"):
        redis_lock("order:<pk>", max_hold=max_hold)


@pytest.mark.parametrize("min_hold", [0, -1, True, float("nan"), 6])
def test_a_bad_min_hold_is_refused_at_once(min_hold: float) -> None:
    with pytest.raises(ValueError, match="min_hold"):
        redis_lock("order:<pk>", min_hold=min_hold, max_hold=5)


def test_replicas_that_are_no_number_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="replicas"):
        redis_lock("order:<pk>", replicas=-1)


def test_a_renew_that_is_no_bool_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="renew is True or False"):
        redis_lock("order:<pk>", renew="yes")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("option", ["on_busy", "on_unavailable", "on_lost"])
def test_an_answer_that_is_no_callable_is_refused_at_once(option: str) -> None:
    with pytest.raises(TypeError, match=f'{option} is "raise" or a callable'):
        redis_lock("order:<pk>", **{option: "ignore"})  # type: ignore[arg-type]  # the mistake under test


def test_a_name_that_is_no_parameter_is_refused_with_those_that_are() -> None:
    def pay(request: HttpRequest, order_id: int) -> HttpResponse:
        return HttpResponse()

    with pytest.raises(ValueError, match=r"names <pk>, but .*pay takes request, order_id$"):
        redis_lock("order:<pk>")(pay)


def test_a_name_that_is_no_parameter_is_refused_through_other_decorators() -> None:
    @login_required
    def pay(request: HttpRequest, order_id: int) -> HttpResponse:
        return HttpResponse()

    with pytest.raises(ValueError, match=r"names <pk>"):
        redis_lock("order:<pk>")(pay)


def test_an_attribute_is_refused_where_there_can_be_no_request() -> None:
    def charge_account(account_id: int) -> None: ...

    with pytest.raises(ValueError, match=r"<user\.pk>.*call its request parameter request"):
        redis_lock("account:<user.pk>")(charge_account)


def test_an_attribute_is_accepted_where_an_annotation_tells_the_request() -> None:
    def view(r: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    assert redis_lock("account:<user.pk>")(view) is not view


def test_a_class_is_refused_with_what_to_write() -> None:
    class Pay(View):
        pass

    with pytest.raises(TypeError, match=r'@method_decorator\(redis_lock\(...\), name="dispatch"\)'):
        redis_lock("order:<pk>")(Pay)


def test_an_async_generator_is_refused() -> None:
    async def rows(pk: int) -> AsyncIterator[int]:
        yield pk

    with pytest.raises(TypeError, match=r"rows is a generator.*async with lock"):
        redis_lock("order:<pk>")(rows)


def test_a_generator_is_refused() -> None:
    def rows(pk: int) -> Iterator[int]:
        yield pk

    with pytest.raises(TypeError, match=r"rows is a generator.*with lock"):
        redis_lock("order:<pk>")(rows)


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_a_wrong_order_with_static_and_class_methods_is_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"put redis_lock below @{kind.__name__}"):
        redis_lock("order:<pk>")(kind(lambda pk: None))


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="redis_lock decorates functions, not 42"):
        redis_lock("order:42")(42)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("option", ["on_busy", "on_unavailable", "on_lost"])
def test_an_answer_to_a_request_that_can_never_come_is_refused(option: str) -> None:
    def answer(request: HttpRequest, error: Exception) -> HttpResponse:
        return HttpResponse()

    def pay(pk: int) -> None: ...

    decorate = redis_lock("order:<pk>", **{option: answer})  # type: ignore[arg-type]  # by its name

    with pytest.raises(TypeError, match=r"pay takes no request"):
        decorate(pay)


def test_a_template_that_fits_by_method_decorator_is_not_refused_early() -> None:
    class Pay(View):
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse()

    assert method_decorator(redis_lock("order:<pk>"), name="post")(Pay) is Pay


@pytest.mark.parametrize("module", ["celery.app.task", "dramatiq.actor", "huey.api"])
def test_what_sends_a_task_is_refused_unasked(module: str) -> None:
    def asked(self: object, name: str) -> None:
        raise AssertionError(f"asked for {name}")

    kind = type("Task", (), {"__module__": module, "__call__": print, "__getattr__": asked})

    with pytest.raises(TypeError, match="put redis_lock below the decorator that makes the task"):
        redis_lock("order:<pk>")(kind())
