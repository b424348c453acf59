from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse

from django_setnx_lock import (
    KeyTemplate,
    LockBusy,
    LockUnavailable,
    inspector,
    lock,
    redis_lock,
    signals,
)
from django_setnx_lock.core import RedisLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import RequestFactory

    from tests.servers import FakeServer

Sent = list[tuple[signals.LockSignal, dict[str, Any]]]
ALL = [one for one in vars(signals).values() if isinstance(one, signals.LockSignal)]


@pytest.fixture
def sent() -> Iterator[Sent]:
    """Give the signals that are sent, with what they carry."""
    found: Sent = []

    def receive(signal: signals.LockSignal, **about: Any) -> None:
        found.append((signal, about))

    for signal in ALL:
        signal.connect(receive)
    yield found
    for signal in ALL:
        assert signal.disconnect(receive)


@redis_lock("order:<pk>")
def pay(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("paid")


def test_a_view_under_a_lock_sends_its_template(rf: RequestFactory, sent: Sent) -> None:
    pay(rf.post("/"), pk=42)

    assert [signal for signal, _ in sent] == [signals.lock_acquired, signals.lock_released]
    for _, about in sent:
        assert (about["key"], about["template"]) == ("order:42", "order:<pk>")
        assert about["sender"] is RedisLock


def test_a_busy_lock_sends_lock_busy(
    sent: Sent,
) -> None:
    with lock("a"), pytest.raises(LockBusy):
        lock(KeyTemplate("<x:str>").format(x="a")).take(0)

    busy = [about for signal, about in sent if signal is signals.lock_busy]
    assert [(about["key"], about["template"]) for about in busy] == [("a", "<x>")]


def test_a_server_that_does_not_answer_sends_lock_unavailable(
    sent: Sent, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    with pytest.raises(LockUnavailable) as caught:
        lock(KeyTemplate("<x:str>").format(x="a")).take(0)

    ((signal, about),) = sent
    assert signal is signals.lock_unavailable
    assert (about["key"], about["template"], about["error"]) == ("a", "<x>", caught.value)
    assert 0 <= about["waited"] < 10


def test_a_holder_that_is_asked_to_stop_sends_who_asks(
    sent: Sent,
) -> None:
    with lock(KeyTemplate("<x:str>").format(x="a")) as held:
        seen = inspector().get("lock:a").fingerprint
        inspector().ask_to_stop("lock:a", seen, by="joe", reason="deploy")
        held.check()

    (about,) = [about for signal, about in sent if signal is signals.lock_stop_requested]
    assert (about["key"], about["template"], about["sender"]) == ("a", "<x>", RedisLock)
    assert str(about["stop_request"]) == "joe asks to stop: deploy"
    assert held.token not in repr(about)


def test_a_receiver_that_fails_is_logged_and_the_others_are_called(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**about: object) -> None:
        raise RuntimeError("oops")

    signals.lock_acquired.connect(fail)
    try:
        with lock("a"):
            pass
    finally:
        signals.lock_acquired.disconnect(fail)

    assert "RuntimeError: oops" in caplog.text
    assert len(sent) == 2
