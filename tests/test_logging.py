"""The loggers of the package: as documented, and without tokens."""

from __future__ import annotations

import ast
import logging
import logging.config
import re
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.conf import settings
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import override_settings

import django_setnx_lock
from django_setnx_lock import (
    LockBusy,
    LockError,
    LockUnavailable,
    inspector,
    lock,
    redis_lock,
)
from django_setnx_lock.core import RedisLock
from django_setnx_lock.signals import lock_acquired
from tests.processes import eventually
from tests.servers import ONCE
from tests.support.seams import fails, note_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import RequestFactory

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

NAME = "django_setnx_lock"
PACKAGE = Path(django_setnx_lock.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "monitoring.md").read_text()
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
OWN_TOKEN = "chosen-by-the-caller"


def logged_by(tree: ast.AST) -> set[tuple[str, str]]:
    """Return logger and level of all that a module logs."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    named = {method: [call for call in calls if methods(call) == method] for method in LEVELS}
    makers = [call for call in calls if methods(call) == "getLogger"]
    names = [ast.literal_eval(call.args[0]) for call in makers]
    return {
        (name, "ERROR" if method == "exception" else method.upper())
        for name in names
        for method, found in named.items()
        if found
    }


def methods(call: ast.Call) -> str:
    """Return the method of a logger that is called, or of ``logging``; else nothing."""
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value
    is_logger = isinstance(owner, ast.Name) and owner.id in {"logger", "logging"}
    return call.func.attr if is_logger else ""


def documented() -> list[tuple[str, str]]:
    return re.findall(r"^\| `([\w.]+)` \| `([A-Z]+)` \|", PAGE, re.MULTILINE)


def test_the_docs_list_each_logger_with_its_levels() -> None:
    logged: set[tuple[str, str]] = set()
    for module in PACKAGE.rglob("*.py"):
        logged |= logged_by(ast.parse(module.read_text()))

    assert sorted(documented()) == sorted(logged)
    assert {name.rpartition(".")[0] for name, _ in logged} == {NAME}


@pytest.fixture
def loggers_as_before() -> Iterator[None]:
    """Put back what a test configures."""
    names = [NAME, *{name for name, _ in documented()}]
    loggers = [logging.getLogger(name) for name in names]
    before = [(one, one.level, one.handlers.copy()) for one in loggers]
    yield
    for one, level, handlers in before:
        for handler in set(one.handlers).difference(handlers):
            handler.close()
        one.setLevel(level)
        one.handlers[:] = handlers


def test_the_configuration_in_the_docs_keeps_force_releases_in_a_file(
    loggers_as_before: None,
    real_cache: RealServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (block,) = re.findall(r"```python\n(LOGGING = .*?)```", PAGE, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(block, namespace)  # noqa: S102 - what the page tells to write
    monkeypatch.chdir(tmp_path)
    logging.config.dictConfig(namespace["LOGGING"])

    force_release(lock("k").take(0).name)

    (line,) = (tmp_path / "force-releases.log").read_text().splitlines()
    assert "'ann' force-released the lock 'k' from " in line
    assert line.endswith(": 'stale'")


def force_release(name: str) -> None:
    inspector().force_release(name, inspector().get(name).fingerprint, by="ann", reason="stale")


def drive(proxy: Proxy, rf: RequestFactory) -> None:
    """Have befall locks what there is."""
    with lock("k"):
        pass
    with lock("k"), suppress(LockBusy):
        lock("k").take(0)
    wait_for_it()
    own = lock("k")
    own.acquire(token=OWN_TOKEN)
    own.release()
    for name in ("k", "v"):
        with suppress(ZeroDivisionError), lock(name) as forced:
            force_release(forced.name)
            with suppress(LockError):
                forced.check()
            raise ZeroDivisionError
    call_command("with_lock", "k", "true")
    lose_by_an_outage(proxy)
    redis_lock("view", using="default")(view_that_loses)(rf.get("/"))


def view_that_loses(request: object) -> HttpResponse:
    force_release("lock:view")
    return HttpResponse("done")


def wait_for_it() -> None:
    held = lock("k").take(0)
    waiter = threading.Thread(target=lambda: lock("k").take(10).release())
    waiter.start()
    eventually(lambda: inspector().get("lock:k").waiting)
    held.release()
    waiter.join(timeout=10)


def lose_by_an_outage(proxy: Proxy) -> None:
    lost = threading.Event()

    def on_lost(held: object) -> None:
        lost.set()
        raise ZeroDivisionError

    with redis.Redis(port=proxy.port, retry=ONCE) as client:
        held = RedisLock(client, "r", timeout=3, renew=True, on_lost=on_lost).take(0)
        proxy.refuse()
        eventually(lambda: fails(held))
        proxy.accept()
        eventually(lambda: not fails(held))
        proxy.refuse()
        assert lost.wait(timeout=10)
        with suppress(LockUnavailable, LockError):
            held.release()


def said_in(record: logging.LogRecord) -> str:
    """Return all that a record could show."""
    formatted = logging.Formatter("%(message)s").format(record)
    return f"{formatted}\n{record.exc_text}\n{record.__dict__!r}"


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of all tokens that were ever made."""
    made = [OWN_TOKEN]
    note_tokens(monkeypatch, made)
    return made


def test_no_log_tells_a_token(
    real_cache: RealServer,
    proxy: Proxy,
    rf: RequestFactory,
    tokens: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver: Callable[..., float] = lambda **about: 1 / 0  # noqa: E731 - fails when called
    lock_acquired.connect(receiver)
    try:
        with caplog.at_level(logging.DEBUG):
            drive(proxy, rf)
    finally:
        lock_acquired.disconnect(receiver)

    by_logger = defaultdict(set)
    for record in caplog.records:
        by_logger[record.name].add(record.levelname)
    # What nobody foresees comes from no drive.
    unforeseen = {(f"{NAME}.{part}", "ERROR") for part in ("lock", "renewal", "force_release")}
    unforeseen.add((f"{NAME}.history", "WARNING"))
    expected = set(documented()) - unforeseen
    assert expected <= {(name, level) for name, found in by_logger.items() for level in found}
    assert len(tokens) > 8
    said = [said_in(record) for record in caplog.records]
    assert [text for text in said if any(token in text for token in tokens)] == []


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about long waits."""
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [message for message in said if message.startswith("has waited")]


@pytest.fixture
def soon_warned() -> Iterator[None]:
    """Have the log warn of each wait of more than a tenth of a second."""
    with override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "WAIT_WARNING": 0.1}):
        yield


def test_a_wait_of_more_than_the_setting_is_warned_of(
    real_cache: RealServer, soon_warned: None, caplog: pytest.LogCaptureFixture
) -> None:
    with lock("k", label="view pay"), pytest.raises(LockBusy):
        lock("k").take(0.3)

    (said,) = warned(caplog)
    assert re.match(r"has waited \d+\.\d s for the lock 'k', held by ", said)
    assert "(view pay)" in said


def test_with_lock_which_says_whom_it_waits_for_is_not_warned_of(
    soon_warned: None, caplog: pytest.LogCaptureFixture
) -> None:
    with lock("k"), pytest.raises(CommandError):
        call_command("with_lock", "--wait", "0.3", "k", "true")

    assert warned(caplog) == []
