from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.core import RedisLock, events
from django_setnx_lock.core.protocol.keys import lock_keys
from django_setnx_lock.responses import USUAL_TIMES, UsualTimes, busy, retry_after
from django_setnx_lock.testing import LockTester

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from django.test import AsyncRequestFactory, RequestFactory

    from django_setnx_lock.testing.helpers import LockHelpers
    from tests.servers import FakeServer

TEMPLATE = "usual:<pk:int>"


@redis_lock(TEMPLATE, timeout=30)
def view(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@pytest.fixture
def tester() -> Iterator[LockHelpers]:
    """Give a server in memory, and time that passes at once."""
    with LockTester(leftovers="ignore") as tester:
        yield tester


def hold(tester: LockHelpers, seconds: float, **options: Any) -> None:
    """Hold a lock of the view's template for so long."""
    with lock("usual:1", template=TEMPLATE, timeout=30, **options):
        tester.advance(seconds)


def asked(rf: RequestFactory) -> int:
    response = view(rf.post("/"), pk=42)
    assert response.status_code == 409
    return int(response["Retry-After"])


def test_retry_after_is_the_time_for_which_the_lock_is_usually_held(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    hold(tester, 7.5)

    with tester.held_elsewhere("usual:42", timeout=30):
        assert asked(rf) == 8


def test_what_the_holder_has_had_already_is_taken_off(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    hold(tester, 7.5)

    with tester.held_elsewhere("usual:42", timeout=30):
        tester.advance(5)
        assert asked(rf) == 3


def test_a_holder_that_takes_longer_is_given_as_long_again(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    hold(tester, 2)

    with tester.held_elsewhere("usual:42", timeout=30):
        tester.advance(8.5)
        assert asked(rf) == 9


def test_a_killed_holder_is_waited_for_until_its_lease_ends(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    hold(tester, 25)

    with tester.held_elsewhere("usual:42", timeout=12, renew=False):
        assert asked(rf) == 12


def test_nobody_is_sent_away_for_longer_than_the_own_timeout(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    hold(tester, 300)

    with tester.held_elsewhere("usual:42", timeout=1000):
        assert asked(rf) == 30


def test_a_short_time_is_assumed_before_any_was_measured(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    with tester.held_elsewhere("usual:42", timeout=30):
        assert asked(rf) == 2


def test_a_holder_without_a_lease_or_record_gets_the_usual_time(
    rf: RequestFactory, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:usual:42", "foreign")

    assert asked(rf) == 2


def test_a_lock_with_min_hold_is_taken_at_least_so_long(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    @redis_lock("tick:<name>", timeout=60, min_hold=20)
    def tick(request: HttpRequest, name: str) -> HttpResponse:
        return HttpResponse()

    assert tick(rf.post("/"), name="a").status_code == 200
    tester.advance(5)

    assert tick(rf.post("/"), name="a")["Retry-After"] in {"13", "14", "15", "16"}


def test_the_page_and_the_json_give_the_seconds_of_the_header(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    hold(tester, 6.5)

    with tester.held_elsewhere("usual:42", timeout=30):
        page = view(rf.post("/", headers={"accept": "text/html"}), pk=42)
        data = view(rf.post("/", headers={"accept": "application/json"}), pk=42)

    assert page["Retry-After"] == data["Retry-After"] == "7"
    assert "try again in 7 seconds" in page.content.decode()
    assert json.loads(data.content)["retry_after"] == 7


def test_a_callable_for_on_busy_can_ask_for_the_same_number(
    tester: LockHelpers, rf: RequestFactory
) -> None:
    @redis_lock(TEMPLATE, on_busy=lambda _, error: HttpResponse(str(retry_after(error))))
    def own(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    hold(tester, 6.5)

    with tester.held_elsewhere("usual:42"):
        assert own(rf.post("/"), pk=42).content == b"7"


def test_the_latest_holders_count_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.RELEASED, "listeners", [])
    times = UsualTimes()
    times.watch("a:<b>", None)

    for seconds in (10, *[1] * 20):
        events.RELEASED.tell(template="a:<b>", held_for=seconds)

    usual = times.of("a:<b>")
    assert usual is not None
    assert 1 < usual < 1.2


def test_only_templates_of_decorators_are_remembered(tester: LockHelpers) -> None:
    with lock("any:1", template="any:1"):
        pass

    assert USUAL_TIMES.of("any:1") is None


def test_a_lock_had_again_counts_once_for_the_outermost_block(tester: LockHelpers) -> None:
    with lock("usual:1", template=TEMPLATE, reentrant=True):
        tester.advance(4)
        with lock("usual:1", template=TEMPLATE, reentrant=True):
            pass
        tester.advance(4)

    assert USUAL_TIMES.of(TEMPLATE) == pytest.approx(8, abs=0.5)


def test_a_busy_lock_tells_for_how_long_it_has_been_held(tester: LockHelpers) -> None:
    with tester.held_elsewhere("usual:42", timeout=30):
        tester.advance(5)
        with pytest.raises(LockBusy) as caught:
            lock("usual:42", timeout=9, template=TEMPLATE).take(0)

    assert caught.value.held_for == pytest.approx(5, abs=0.5)
    assert (caught.value.template, caught.value.timeout) == (TEMPLATE, 9)


@pytest.mark.parametrize("shared", [False, True])
def test_who_asks_for_what_one_holds_alone_learns_for_how_long(
    redis_client: redis.Redis, *, shared: bool
) -> None:
    with RedisLock(redis_client, "lock:a"):
        # The fence is the time of the grant on the server.
        names = lock_keys("lock:a")
        fence, rest = str(redis_client.get(names.meta), "utf-8").split(" ", 1)  # type: ignore[arg-type]
        redis_client.set(names.meta, f"{int(fence) - 5_000_000} {rest}", keepttl=True)
        with pytest.raises(LockBusy) as caught:
            RedisLock(redis_client, "lock:a", shared=shared).take(0)

    assert caught.value.held_for == pytest.approx(5, abs=1)


@override_settings(SETNX_LOCK={"TIMEOUT": 1})
def test_an_error_without_a_timeout_is_bounded_by_the_setting(rf: RequestFactory) -> None:
    assert busy(rf.get("/"), LockBusy("busy"))["Retry-After"] == "1"


def test_one_listener_serves_all_templates() -> None:
    redis_lock("usual:a:<pk>")
    before = len(events.RELEASED.listeners)

    redis_lock("usual:b:<pk>")

    assert len(events.RELEASED.listeners) == before


@pytest.mark.usefixtures("fake_connections")
def test_async_views_are_measured(async_rf: AsyncRequestFactory) -> None:
    @redis_lock("usual:async:<pk>")
    async def aview(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    assert asyncio.run(aview(async_rf.post("/"), pk=42)).status_code == 200

    assert USUAL_TIMES.of("usual:async:<pk>") is not None
