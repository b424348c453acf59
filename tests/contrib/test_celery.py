"""Tasks under locks, run by a real worker of Celery on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, Task, shared_task
from celery.exceptions import TaskRevokedError
from django.core.cache import caches as django_caches
from django.test import override_settings

from django_setnx_lock import LockBusy, LockLost, lock, locked
from django_setnx_lock.contrib.celery import locked_task
from tests.contrib import shop
from tests.processes import eventually
from tests.servers import RealServer, any_binary
from tests.settings import caches
from tests.support.brokers import need_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


pytestmark = [pytest.mark.unmeasured, pytest.mark.xdist_group("celery")]


@contextmanager
def at_work(log: Path, *options: str) -> Iterator[Celery]:
    """Have a worker with these options run, on a server of its own; give an app that calls it."""
    with RealServer(any_binary()) as server:
        app = Celery(set_as_current=False)
        app.conf.update(shop.places(server.url))
        need_broker(app.conf.broker_url)
        command = (sys.executable, "-m", "celery", "-A", "tests.contrib.shop", "worker")
        environment = {
            **os.environ,
            "TEST_SERVER_URL": server.url,
            "TEST_WORKER_OF": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": os.getcwd(),
        }
        with (
            log.open("w") as out,
            subprocess.Popen(
                (*command, "--without-gossip", "--without-mingle", "-l", "INFO", *options),
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            ) as process,
            override_settings(CACHES=caches(server.url)),
        ):
            try:
                eventually(lambda: "ready." in log.read_text() or process.poll() is not None)
                assert process.poll() is None, log.read_text()
                yield app
            finally:
                process.terminate()
                process.wait(20)
                app.close()
                factory: Any = django_caches["default"].client.connection_factory  # type: ignore[attr-defined]  # BaseCache has none
                pool = factory._pools.pop(server.url, None)
                if pool is not None:
                    pool.disconnect()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have a worker with two processes run the tasks of the shop."""
    log = tmp_path_factory.mktemp("celery") / "worker.log"
    with at_work(log, "--concurrency=2") as app:
        shop.app.conf.update(broker_url=app.conf.broker_url, result_backend=app.conf.result_backend)
        yield
        shop.app.close()


@pytest.fixture
def key(worker: None) -> str:
    return uuid.uuid4().hex[:8]


def told(key: str, app: Celery = shop.app) -> list[str]:
    lines: Any = shop.diary(app).lrange(key, 0, -1)
    return [one.decode() for one in lines]


def test_two_tasks_of_one_key_never_overlap(key: str) -> None:
    results = [shop.waits.delay(key, 0.05) for _ in range(4)]

    assert [one.get(timeout=20) for one in results] == ["done"] * 4
    assert told(key) == ["begin", "end"] * 4


def test_without_a_lock_they_would(key: str) -> None:
    results = [shop.unlocked.delay(key, -1) for _ in range(2)]

    eventually(lambda: told(key) == ["begin", "begin"])
    shop.diary().rpush(f"go:{key}", 1, 1)
    assert [one.get(timeout=20) for one in results] == ["done"] * 2


def test_a_task_whose_lock_is_busy_is_sent_again_and_not_counted(key: str) -> None:
    with lock(f"order:{key}"):
        result = shop.retried.delay(key)
        eventually(lambda: result.state == "RETRY")
        meanwhile = told(key)

    assert result.get(timeout=20) == "done"
    assert meanwhile == []
    assert told(key) == ["begin", "end"]


def test_a_task_whose_lock_is_busy_is_discarded(key: str) -> None:
    with lock(f"order:{key}"):
        result = shop.skipped.delay(key)
        with pytest.raises(TaskRevokedError, match="its lock is held"):
            result.get(timeout=20)

    assert told(key) == []
    assert shop.skipped.delay(key).get(timeout=20) == "done"


def test_a_task_that_its_killed_worker_held_up_is_not_discarded(key: str) -> None:
    assert shop.skipped_late.delay(key).get(timeout=20) == "done"

    assert told(key) == ["begin", "end"] * 2


def test_a_lock_is_free_when_the_result_is_there(key: str) -> None:
    shop.retried.delay(key).get(timeout=20)

    assert not lock(f"order:{key}").locked()


def test_a_lost_lock_fails_the_task(key: str) -> None:
    with pytest.raises(LockLost):
        shop.loses.delay(key).get(timeout=20)


@pytest.mark.storm
def test_the_task_of_a_killed_process_is_done_when_its_lease_is_over(key: str) -> None:
    result = shop.late.delay(key)

    assert result.get(timeout=20) == "done"
    assert told(key) == ["begin", "end"] * 2


CALLS: dict[str, Callable[[str], Any]] = {
    "called": lambda key: shop.retried(key),
    "applied": lambda key: shop.retried.apply((key,), throw=True).get(),
}


@override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": 0, "REENTRANT": False})
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_task_that_is_run_at_once_has_its_lock(key: str, call: Callable[[str], Any]) -> None:
    with lock(f"order:{key}"), pytest.raises(LockBusy):
        call(key)

    assert call(key) == "done"


@override_settings(SETNX_LOCK={"REENTRANT": True})
def test_a_task_that_is_called_goes_on_with_the_lock_of_its_caller(key: str) -> None:
    with lock(f"order:{key}") as held:
        assert shop.retried(key) == "done"
        held.check()


@pytest.mark.matrix
@pytest.mark.parametrize("pool", ["threads", "gevent", "solo"])
def test_in_each_pool_tasks_of_one_key_never_overlap(tmp_path: Path, pool: str) -> None:
    log, key = tmp_path / "worker.log", uuid.uuid4().hex[:8]
    with at_work(log, "--pool", pool, "--concurrency=4") as app:

        def send(name: str) -> Any:
            return app.send_task(f"shop.{name}", (key,))

        results = [send(name) for name in ["waits", "retried"] * 4]

        assert [one.get(timeout=20) for one in results] == ["done"] * 8, log.read_text()
        assert told(key, app) == ["begin", "end"] * 8
        with lock(f"order:{key}"), pytest.raises(TaskRevokedError):
            send("skipped").get(timeout=20)
        with pytest.raises(LockLost):
            send("loses").get(timeout=20)


def test_a_task_is_sent_with_what_its_function_takes() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'key'"):
        shop.retried.delay()


@override_settings(SETNX_LOCK={"REENTRANT": False})
def test_a_bound_task_is_given_itself(key: str) -> None:
    @locked_task("order:<pk>", bind=True, name="bound")
    def bound(self: Any, pk: str) -> tuple[str, bool]:
        return self.name, lock(f"order:{pk}").locked()

    assert bound(key) == ("bound", True)
    assert bound.apply((key,)).get() == ("bound", True)


def f(pk: int) -> None: ...


@pytest.mark.parametrize(
    ("template", "options", "message"),
    [
        ("order:<order_id>", {}, r"names <order_id>, but \S+\.f takes pk"),
        ("order:<pk", {}, "without its partner"),
        ("order:<pk>", {"on_busy": "wait"}, "on_busy is one of retry, skip"),
        ("order:<pk>", {"busy_countdown": 0}, "busy_countdown"),
        ("order:<pk>", {"lock_options": {"lease": 3}}, "no option 'lease'"),
        ("order:<pk>", {"lock_options": {"timeout": -1}}, "timeout"),
    ],
)
def test_what_cannot_work_is_refused_where_the_task_is_declared(
    template: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        locked_task(template, **options)(f)


def test_a_task_is_refused_above_which_a_lock_is_put() -> None:
    class Pays(Task):  # type: ignore[misc]  # Celery ships no types
        name = "pays-by-class"

    for task in (shop.unlocked, Pays()):
        with pytest.raises(TypeError, match="put locked below the decorator that makes the"):
            locked("order:<pk>")(task)


def test_a_lock_below_shared_task_leaves_a_task() -> None:
    @shared_task  # type: ignore[untyped-decorator]  # the same
    @locked("order:<pk>", blocking_timeout=0)
    def refunds(pk: str) -> bool:
        return lock(f"order:{pk}").locked()

    assert callable(refunds.delay)
    assert refunds("below")
