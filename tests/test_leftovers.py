"""What a request or a task leaves held is given up at its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from celery import Celery, current_app
from celery.app.log import Logging
from celery.contrib.testing.worker import start_worker
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_finished, request_started
from django.http import HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path

from django_setnx_lock import LockBusy, leftovers, lock
from django_setnx_lock.core.locks import reentrancy
from django_setnx_lock.core.renewal.watchdog import WATCHDOG
from tests.core.helpers import in_thread

if TYPE_CHECKING:
    from django.test import Client

    from django_setnx_lock.core import LockHandle

KEPT: list[LockHandle] = []


def take(key: str = "a") -> LockHandle:
    held = lock(key, blocking=False).take()
    KEPT.append(held)
    return held


def leave_held(request: Any) -> HttpResponse:
    take()
    return HttpResponse("left")


async def leave_held_async(request: Any) -> HttpResponse:
    await sync_to_async(take)()
    return HttpResponse("left")


async def leave_a_task(request: Any) -> HttpResponse:
    started = asyncio.Event()

    async def work() -> None:
        await sync_to_async(take, thread_sensitive=False)()
        started.set()
        await asyncio.sleep(60)

    TASKS.append(asyncio.create_task(work()))
    await started.wait()
    return HttpResponse("started")


def hand_over(request: Any) -> HttpResponse:
    take().handover()
    return HttpResponse("handed over")


def stream(request: Any) -> StreamingHttpResponse:
    def parts() -> Iterator[bytes]:
        held = take()
        yield b"one"
        held.check()
        yield b"two"

    return StreamingHttpResponse(parts())


async def stream_async(request: Any) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        held = await sync_to_async(take)()
        yield b"one"
        await sync_to_async(held.check)()
        yield b"two"

    return StreamingHttpResponse(parts())


TASKS: list[asyncio.Task[None]] = []
urlpatterns = [
    path("left/", leave_held),
    path("left-async/", leave_held_async),
    path("task/", leave_a_task),
    path("over/", hand_over),
    path("stream/", stream),
    path("stream-async/", stream_async),
]


@pytest.fixture(autouse=True)
def reentrant() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, SETNX_LOCK={"REENTRANT": True}):
        yield
    KEPT.clear()
    TASKS.clear()


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Give what tells what was warned of."""
    caplog.set_level(logging.WARNING, "django_setnx_lock")
    return lambda: [
        one.getMessage() for one in caplog.records if one.name == "django_setnx_lock.lock"
    ]


def is_renewed(held: LockHandle) -> bool:
    return held.grant in WATCHDOG.watched()


def test_what_a_view_leaves_held_is_given_up(
    client: Client, warnings_of: Callable[[], list[str]]
) -> None:
    client.get("/left/")

    (held,) = KEPT
    assert not is_renewed(held)
    with pytest.raises(LockBusy):
        take()
    (warning,) = warnings_of()
    assert warning.startswith("the lock 'a' is still held at the end of the request")
    assert held.token not in warning


def test_without_that_the_next_request_would_have_it_again(
    client: Client, warnings_of: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reentrancy, "left_held", lambda place: [])

    client.get("/left/")

    assert is_renewed(KEPT[0])
    assert take().token == KEPT[0].token


def test_the_handle_still_releases_it(client: Client) -> None:
    client.get("/left/")

    KEPT[0].release()

    take().release()


def test_what_was_handed_over_goes_on(client: Client, warnings_of: Callable[[], list[str]]) -> None:
    client.get("/over/")

    assert is_renewed(KEPT[0])
    assert warnings_of() == []


def test_what_was_held_before_the_request_stays(
    client: Client, warnings_of: Callable[[], list[str]]
) -> None:
    held = take()

    client.get("/left/")

    # The view had a share of it, and left that.
    assert is_renewed(held)
    assert warnings_of() == []
    assert take().token == held.token


def test_a_request_within_a_request_ends_only_what_is_its_own(
    warnings_of: Callable[[], list[str]],
) -> None:
    leftovers.begin()
    outer = take("outer")
    leftovers.begin()
    take("inner")

    leftovers.end("the inner one")
    within = is_renewed(outer)
    leftovers.end("the outer one")

    assert within
    assert [text.split("'")[1] for text in warnings_of()] == ["inner", "outer"]


def test_the_end_of_what_never_began_changes_nothing(
    warnings_of: Callable[[], list[str]],
) -> None:
    def end() -> bool:
        held = take()
        request_finished.send(None)
        return is_renewed(held)

    assert in_thread(end)
    assert warnings_of() == []


def test_begun_things_that_never_end_are_forgotten() -> None:
    def begin() -> int:
        for _ in range(1000):
            request_started.send(None)
        # Nothing that could be asked tells how much is kept in memory.
        return len(leftovers._begun[leftovers._place()])

    assert in_thread(begin) == 64


def test_a_stream_holds_its_lock_until_it_is_closed(
    client: Client, warnings_of: Callable[[], list[str]]
) -> None:
    response: Any = client.get("/stream/")
    parts = iter(response.streaming_content)
    first = next(parts)
    while_it_streams = is_renewed(KEPT[0])

    # At the end the test client closes the response, as servers do.
    rest = list(parts)

    assert (first, rest, while_it_streams) == (b"one", [b"two"], True)
    assert not is_renewed(KEPT[0])
    assert len(warnings_of()) == 1


def serve(url: str) -> list[dict[str, Any]]:
    """Serve one request as an ASGI server does, and return what was sent."""
    sent: list[dict[str, Any]] = []

    async def main() -> None:
        came: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]
        never = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if came:
                return came.pop()
            await never.wait()
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": url,
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
        }
        await ASGIHandler()(scope, receive, send)
        during.extend(map(is_renewed, KEPT))
        for task in TASKS:
            task.cancel()
        await asyncio.gather(*TASKS, return_exceptions=True)

    during.clear()
    asyncio.run(main())
    return sent


during: list[bool] = []


@pytest.mark.parametrize("url", ["/left/", "/left-async/"])
def test_what_a_view_leaves_held_under_asgi_is_given_up(
    url: str, warnings_of: Callable[[], list[str]]
) -> None:
    sent = serve(url)

    assert sent[1]["body"] == b"left"
    assert during == [False]
    assert len(warnings_of()) == 1


def test_a_task_that_outlives_its_request_keeps_its_lock(
    warnings_of: Callable[[], list[str]],
) -> None:
    serve("/task/")

    assert during == [True]
    assert warnings_of() == []


def test_a_stream_under_asgi_holds_its_lock_until_the_end(
    warnings_of: Callable[[], list[str]],
) -> None:
    sent = serve("/stream-async/")

    assert b"".join(one.get("body", b"") for one in sent) == b"onetwo"
    assert during == [False]
    assert len(warnings_of()) == 1


def test_a_pools_thread_does_not_have_again_what_another_request_left() -> None:
    got: list[Any] = []

    async def request(work: Callable[[], object]) -> None:
        async with ThreadSensitiveContext():
            got.append(await asyncio.gather(asyncio.to_thread(work), return_exceptions=True))

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await request(take)
        await request(take)
        # Nor does the same thread without a request: it is another job.
        got.append(await asyncio.gather(asyncio.to_thread(take), return_exceptions=True))

    asyncio.run(main())

    assert [type(one) for (one,) in got[1:]] == [LockBusy, LockBusy]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """Give an app of Celery with a broker in memory, the signals listened to."""
    # Its workers choose the level of all loggers, and leave it at that.
    monkeypatch.setattr(Logging, "setup", lambda *args, **options: None)
    leftovers.install()
    app = Celery("scopes", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=False,
        broker_transport_options={"polling_interval": 0.01},
    )
    # A worker that is started here makes its app that of all tasks.
    before = current_app._get_current_object()
    yield app
    before.set_current()
    before.set_default()


def test_what_a_task_leaves_held_is_given_up(
    app: Celery, warnings_of: Callable[[], list[str]]
) -> None:
    threads: list[int] = []

    @app.task(name="scopes.left")  # type: ignore[untyped-decorator]  # Celery ships no types
    def left() -> None:
        threads.append(threading.get_ident())
        take()

    @app.task(name="scopes.again")  # type: ignore[untyped-decorator]  # the same
    def again() -> bool:
        threads.append(threading.get_ident())
        return lock("a").acquire(blocking=False)

    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        left.delay().get(timeout=20)
        had_again = again.delay().get(timeout=20)

    assert len(set(threads)) == 1
    assert had_again is False
    assert any("held at the end of the task scopes.left" in text for text in warnings_of())


def test_a_task_that_is_run_at_once_leaves_its_callers_locks(
    app: Celery, warnings_of: Callable[[], list[str]]
) -> None:
    held = take("caller")

    @app.task(name="scopes.inner")  # type: ignore[untyped-decorator]  # the same
    def inner() -> None:
        take("inner")

    inner.apply()

    assert is_renewed(held)
    assert [text.split("'")[1] for text in warnings_of()] == ["inner"]
