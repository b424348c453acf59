"""One row that many requests add to, each of which reads, takes its time, and writes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_setnx_lock import lock, redis_lock
from example_project.shop.models import Order
from tests.postgres.conftest import ALIAS
from tests.processes import figure

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS, TIMES, FEWER_TIMES = 8, 20, 5

pytestmark = [
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("real_cache"),
    pytest.mark.xdist_group("postgres"),
]


def add_one(pk: int) -> None:
    order = Order.objects.using(ALIAS).get(pk=pk)
    time.sleep(0.001)
    order.amount += 1
    order.save(using=ALIAS)


def unlocked(request: HttpRequest, pk: int) -> HttpResponse:
    add_one(pk)
    return HttpResponse()


def in_block(request: HttpRequest, pk: int) -> HttpResponse:
    with lock(f"order:{pk}", blocking_timeout=60):
        add_one(pk)
    return HttpResponse()


def in_block_exit(request: HttpRequest, pk: int) -> HttpResponse:
    with lock(f"order:{pk}", blocking_timeout=60, until_commit=False):
        add_one(pk)
    return HttpResponse()


urlpatterns = [
    path("<int:pk>/unlocked/", unlocked),
    path("<int:pk>/view/", redis_lock("order:<pk>", blocking_timeout=60)(unlocked)),
    path("<int:pk>/block/", in_block),
    path("<int:pk>/block-exit/", in_block_exit),
]


def amount_after(work: Callable[[int], object], times: int) -> int:
    """What the row has when each thread has done ``work`` so many ``times``."""
    order = Order.objects.using(ALIAS).create(pk=1, number="1", amount=0)

    def repeat(_number: int) -> None:
        try:
            for _ in range(times):
                work(order.pk)
        finally:
            connections.close_all()

    begun = time.monotonic()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(repeat, range(THREADS)))
    order.refresh_from_db()
    took = time.monotonic() - begun
    figure(f"{order.amount} of {THREADS * times} in {took:.1f} s")
    return int(order.amount)


def request(where: str) -> Callable[[int], None]:
    def post(pk: int) -> None:
        response = Client().post(f"/{pk}/{where}/")
        assert response.status_code == 200

    return post


@pytest.fixture
def atomic_requests(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings[postgres], "ATOMIC_REQUESTS", True)


@pytest.mark.usefixtures("atomic_requests")
def test_a_locked_view_under_atomic_requests_loses_no_update() -> None:
    assert amount_after(request("view"), TIMES) == THREADS * TIMES


@pytest.mark.usefixtures("atomic_requests")
def test_a_locked_block_in_the_transaction_of_the_request_loses_none() -> None:
    assert amount_after(request("block"), FEWER_TIMES) == THREADS * FEWER_TIMES


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize(
    "where", [pytest.param("unlocked", marks=pytest.mark.matrix), "block-exit"]
)
def test_what_lets_go_before_the_commit_loses_updates(where: str) -> None:
    assert amount_after(request(where), FEWER_TIMES) < THREADS * FEWER_TIMES


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize(("until_commit", "loses"), [(True, False), (False, True)])
def test_a_lock_within_a_transaction_outlives_it_unless_told_otherwise(
    until_commit: bool, loses: bool
) -> None:
    def work(pk: int) -> None:
        one = lock(f"order:{pk}", blocking_timeout=60, until_commit=until_commit)
        with transaction.atomic(using=ALIAS), one:
            add_one(pk)

    assert (amount_after(work, FEWER_TIMES) < THREADS * FEWER_TIMES) is loses
