"""Every public name as a typed project uses it, and the mistakes that a type checker finds."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
import redis
from django.contrib import admin
from django.core.management.base import CommandParser
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.response import Response

import django_setnx_lock
from django_setnx_lock import (
    KeyTemplate,
    LockBusy,
    LockDeadlock,
    LockError,
    LockLost,
    LockUnavailable,
    LockUnsupported,
    StaleFence,
    core,
    inspector,
    lock,
    locked,
    redis_lock,
    rwlock,
    semaphore,
)
from django_setnx_lock.admin import LockAdmin, LockedAdminMixin, locked_action
from django_setnx_lock.contrib import fencing, prometheus
from django_setnx_lock.contrib.celery import locked_task
from django_setnx_lock.contrib.fencing import (
    FencedManager,
    FencedModel,
    FencedQuerySet,
    FenceField,
    guard,
)
from django_setnx_lock.contrib.opentelemetry import instrument, uninstrument
from django_setnx_lock.contrib.prometheus import LockCollector, LockMetrics
from django_setnx_lock.contrib.rest_framework import exception_handler
from django_setnx_lock.core import (
    Holder,
    Inspector,
    LockHandle,
    LockInfo,
    LockPage,
    MultiLock,
    MultiLockHandle,
    Outcome,
    RedisLock,
    Redlock,
    RWLock,
    State,
    StopRequest,
    WaiterInfo,
)
from django_setnx_lock.management import LockedCommand
from django_setnx_lock.middleware import LockMiddleware
from django_setnx_lock.models import Lock
from django_setnx_lock.options import LockOptions
from django_setnx_lock.signals import lock_acquired
from django_setnx_lock.testing import LockTester, LockTestMixin
from django_setnx_lock.views import LockedRequest, LockedViewMixin, lock_failure, retry_after
from tests.contrib import shop  # noqa: F401 - the tasks are of its app
from tests.contrib.fencing.models import Seat
from tests.rows.models import Ticket
from tests.servers import FakeServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.admin import ModelAdmin
    from django.db.models import QuerySet
    from django.test import SimpleTestCase
    from typing_extensions import assert_type

    Admin = ModelAdmin[Ticket]
    Case = SimpleTestCase
else:
    Admin, Case = admin.ModelAdmin, object

    def assert_type(value: Any, kind: Any) -> Any:
        return value


def busy(request: HttpRequest, error: LockBusy) -> HttpResponse:
    assert_type(retry_after(error), int)
    assert_type(error.holder, Holder | None)
    return assert_type(lock_failure(request, error), HttpResponse)


@redis_lock("order:<pk:int>", methods=["POST"], on_busy=busy, blocking_timeout=2, renew=False)
def pay(request: LockedRequest, pk: int) -> HttpResponse:
    assert_type(request.lock, LockHandle)
    return HttpResponse()


@redis_lock(lambda request, pk: f"order:{pk}", "stock", until_commit=False)
async def apay(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@method_decorator(redis_lock("order:<pk>", shared=True), name="post")
class Edit(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()


class Mixed(LockedViewMixin, View):
    lock_key = ("order:<pk:int>", "stock")
    lock_options: ClassVar = {"timeout": 60}


@locked("invoice:<n>", timeout=60, limit=3)
def invoice(n: int) -> str:
    return str(n)


@locked("invoice:<n>")
async def ainvoice(n: int) -> str:
    return str(n)


@locked_task("ticket:<pk:int>", on_busy="skip", lock_options={"timeout": 60})
def send(pk: int) -> None:
    pass


class Tickets(LockedAdminMixin, Admin):
    lock_key = "ticket:<pk>"

    @locked_action("ticket:<pk>", min_hold=1, note="by hand")
    def close(self, request: HttpRequest, queryset: QuerySet[Ticket]) -> None:
        pass


class Command(LockedCommand):
    lock_key = "import:<file>"
    lock_options: ClassVar = {"blocking_timeout": 0}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file")

    def handle(self, *args: Any, **options: Any) -> None:
        assert_type(self.lock, LockHandle)


class Tests(LockTestMixin, Case):
    def check(self) -> None:
        with self.held_elsewhere("x", user="ann", shared=True) as held:
            assert_type(held, LockHandle)


def listen() -> None:
    @receiver(lock_acquired)
    def count(sender: type[RedisLock], template: str, waited: float, **about: object) -> None:
        pass


def fenced(held: LockHandle) -> None:
    with guard(held):
        rows: FencedQuerySet[Any] = Seat.objects.all()
        rows.update(fence=held, price=3)
        Seat(row="a").save(fence=held)


def seen(look: Inspector) -> None:
    page = assert_type(look.find(), LockPage)
    for info in page.locks:
        assert_type(info, LockInfo)
        shares: list[LockInfo] = list(info.shares)
        waiters: list[WaiterInfo] = list(info.waiters)
        assert_type(info.state, State)
        by = f"{shares}{waiters}"
        assert_type(look.force_release(info.name, info.fingerprint, by=by), Outcome)


def without_django(clients: list[redis.Redis]) -> None:
    assert_type(RedisLock(clients[0], "lock:a", protocol="hosted").take(), LockHandle)
    assert_type(RWLock(clients[0], "lock:a").read(), RedisLock)
    assert_type(MultiLock(clients[0], ["lock:a", "lock:b"]).take(), MultiLockHandle)
    assert_type(Redlock(clients, "lock:a", master_timeout=0.2).locked(), bool)


def watched() -> None:
    metrics = LockMetrics()
    metrics.connect()
    LockCollector(["locks"], limit=10).collect()
    instrument(with_keys=True)
    uninstrument()


def of_rows(model: type[FencedModel], field: FenceField, rows: FencedManager[Any]) -> None:
    with lock("a") as held:
        rows.claim(held, pk=7)


def pages(site: admin.AdminSite, page: type[LockAdmin]) -> LockAdmin:
    return page(Lock, site)


def around(get_response: Callable[[HttpRequest], HttpResponse]) -> LockMiddleware:
    return LockMiddleware(get_response)


def methods() -> None:
    mine = lock("order:42", timeout=30, blocking_timeout=None)
    assert_type(mine, RedisLock)
    assert_type(mine.acquire(blocking=False, token="worker-7"), bool)
    assert_type(mine.extend(additional_time=5, replace_ttl=True), Literal[True])
    assert_type(mine.reacquire(), Literal[True])
    assert_type(mine.owned(), bool)
    assert_type(mine.locked(), bool)
    assert_type(mine.token, str | None)
    assert_type(mine.fence, int | None)


async def awaited() -> None:
    mine = lock("order:42")
    assert_type(await mine.aacquire(blocking=False, token="worker-7"), bool)
    assert_type(await mine.aextend(5, replace_ttl=True), Literal[True])
    assert_type(await mine.areacquire(), Literal[True])
    assert_type(await mine.aowned(), bool)
    assert_type(await mine.alocked(), bool)
    await mine.arelease()
    async with mine as held:
        assert_type(held, LockHandle)
    assert_type(await ainvoice(3), str)


def test_what_doors_return() -> None:
    assert assert_type(invoice(3), str) == "3"
    assert assert_type(rwlock("prices", timeout=5), RWLock).write().timeout == 5
    assert_type(rwlock("prices").read(), RedisLock)
    assert_type(semaphore("exports", 3, label="night"), RedisLock)
    assert_type(lock("a", "b"), MultiLock)
    assert_type(inspector(), Inspector)
    assert_type(LockOptions(timeout=3).timeout, float | None)


def test_what_a_block_gives() -> None:
    key: str = KeyTemplate("seat:<show>").format(show="a")
    with lock(key, on_lost=lambda held: held.check()) as held:
        assert_type(held, LockHandle)
        assert_type(held.fence, int)
        assert_type(held.token, str)
        assert assert_type(held.remaining(), float) > 0
        assert assert_type(held.lost, bool) is False
        assert_type(held.stop_requested, StopRequest | None)
        assert_type(held.give_away(), str)
    with lock("a", "b", on_lost=lambda held: held["a"].check()) as both:
        assert_type(both, MultiLockHandle)
        assert_type(both["a"], LockHandle)
        assert_type(both.fences, dict[str, int])
    with LockTester() as locks:
        locks.assert_not_locked("a")


def test_any_client_of_redis_py_will_do() -> None:
    plain: redis.Redis = FakeServer().client()
    positional = RedisLock(plain, "lock:a", 30, 0.1, False, None, True, True)
    named = RedisLock(client=plain, name="lock:a", timeout=30.5, raise_on_release_error=False)

    assert assert_type(positional.timeout, float) == 30
    assert assert_type(named.blocking_timeout, float | None) is None


def test_what_is_raised() -> None:
    def told(error: LockError) -> object:
        if isinstance(error, LockDeadlock):
            return error.cycle
        if isinstance(error, StaleFence):
            return assert_type(error.fence, int)
        if isinstance(error, LockLost):
            return assert_type(error.forced_by, str)
        if isinstance(error, LockUnavailable):
            return assert_type(error.cause, str)
        return isinstance(error, LockUnsupported)

    assert told(LockLost("lost", forced_by="ann")) == "ann"
    assert assert_type(exception_handler(LockBusy("busy"), {}), Response | None) is not None


def test_a_mistake_is_found_by_a_type_checker_and_at_run_time() -> None:
    mistakes: list[Callable[[], object]] = [
        lambda: lock("a", timout=3),  # type: ignore[call-overload]  # misspelt
        lambda: lock(42),  # type: ignore[call-overload]  # no str
        lambda: lock("a", shared=True),  # type: ignore[call-overload]  # of rwlock()
        lambda: lock("a", until_commit="later"),  # type: ignore[call-overload]  # a bool
        lambda: rwlock("a", limits=3),  # type: ignore[call-arg]  # misspelt
        lambda: semaphore("a"),  # type: ignore[call-arg]  # how many is missing
        lambda: redis_lock("a", blocking_timeot=3),  # type: ignore[call-arg]  # misspelt
        lambda: locked("a", unit="ms"),  # type: ignore[call-arg]  # no option
        lambda: locked_action("a:<pk>", sleep=3),  # type: ignore[call-arg]  # no option
        lambda: LockOptions(release="exit"),  # type: ignore[call-arg]  # no option
        lambda: pay("no request", 3),  # type: ignore[arg-type]  # it says so
        lambda: pay(LockedRequest()),  # type: ignore[call-arg]  # the key's value is missing
    ]
    for mistake in mistakes:
        with pytest.raises(TypeError):
            mistake()


@pytest.mark.parametrize(
    "module", [django_setnx_lock, core, fencing, prometheus], ids=lambda module: module.__name__
)
def test_every_public_name_is_used_here(module: Any) -> None:
    nodes = list(ast.walk(ast.parse(Path(__file__).read_text())))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    # As in assert_type(held.fence, int | None).
    used.update(*(str(node.value).split() for node in nodes if isinstance(node, ast.Constant)))

    assert set(module.__all__) - used == set()
