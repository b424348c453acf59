"""Processes that contend for locks while things go wrong: nobody is in with whom he must not be.

Each storm prints how many grants there were, how many to somebody while another still believed in
his, how many fences went back, and the longest wait, and time in which nobody had a lock.
"""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.redis.clusters import Cluster
from tests.servers import RealServer, any_binary
from tests.support.locks import command
from tests.support.storms import PERMITS, Crew, History, Plan, storm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.unmeasured, pytest.mark.timeout(180)]
STORM = pytest.mark.storm
ALONE = pytest.mark.alone
UNITS = pytest.mark.parametrize("unit", ["s", "ms"])
LEASE = 2.0
# What is written is on the disk before it is answered, and there again after a start.
WRITES_ALL = ("--appendonly", "yes", "--appendfsync", "always")


def every(seconds: float, work: Callable[[], object], for_seconds: float = 6.0) -> None:
    end = time.monotonic() + for_seconds
    while time.monotonic() < end:
        work()
        time.sleep(seconds)


def cut(server: RealServer) -> None:
    """Close the connections of all."""
    command(server.client(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


# Nothing goes wrong


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["django", "redis-py"], id="django and redis-py"),
        pytest.param(["several"], id="several", marks=pytest.mark.matrix),
    ],
)
def test_processes_exclude_each_other(
    real_server: RealServer, tmp_path: Path, kinds: list[str]
) -> None:
    plan = Plan(
        [real_server.url],
        kinds,
        keys="abcde",
        seconds=2.0,
        callers=3,
        leases=[30.0],
        waits=[0.0, 1.0],
    )
    environ = {
        "TEST_SERVER_URL": real_server.url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }

    found = storm(tmp_path, [plan] * 2, environ=environ)

    found.tell(f"nothing goes wrong, {' and '.join(kinds)}")
    assert {stay.kind for stay in found.stays} == set(kinds)
    assert found.doubles == []
    assert found.fences_back == 0
    assert real_server.client().keys("lock:?") == []


def test_without_a_lock_they_are_in_together(real_server: RealServer, tmp_path: Path) -> None:
    plan = Plan([real_server.url], ["nothing"], seconds=1.0, callers=3)

    assert storm(tmp_path, [plan]).doubles


@UNITS
@pytest.mark.parametrize("seconds", [1.5, pytest.param(40.0, marks=STORM)])
def test_older_programs_and_ours_exclude_each_other(
    real_server: RealServer, tmp_path: Path, unit: str, seconds: float
) -> None:
    kinds = [f"legacy-{unit}", f"timestamp-{unit}"]
    plan = Plan(
        [real_server.url],
        kinds,
        seconds=seconds,
        callers=6,
        leases=[10.0],
        waits=[10.0],
        work=0.004,
    )

    found = storm(tmp_path, [plan] * (1 if seconds < 2 else 2))

    found.tell(f"beside older programs, {unit}")
    assert {stay.kind for stay in found.stays} == set(kinds)
    assert found.doubles == []


# Callers are killed, are late, and are cut off


@STORM
def test_nobody_is_under_the_lock_together_with_somebody_else(
    real_server: RealServer, tmp_path: Path
) -> None:
    plan = Plan(
        [real_server.url],
        seconds=30.0,
        leases=[0.05, 0.2, 1.0],
        waits=[0.0, 0.1, 1.0],
        work=0.004,
        renewed=0.0,
        late=0.08,
        killed=0.02,
    )

    found = storm(tmp_path, [plan] * 6)

    found.tell("killed and late holders")
    assert len(found.stays) > 100
    assert found.doubles == []
    fences = [stay.fence for stay in found.stays]
    assert fences == sorted(set(fences))


@STORM
def test_callers_for_some_of_a_few_keys_in_any_order_all_come_through(
    real_server: RealServer, tmp_path: Path
) -> None:
    plan = Plan(
        [real_server.url], ["several"], keys="abcde", seconds=20.0, waits=[30.0], leases=[30.0]
    )

    found = storm(tmp_path, [plan] * 6)

    found.tell("several locks together, in any order")
    assert len(found.stays) > 100
    assert found.doubles == []
    assert found.refused == []


@STORM
def test_those_who_share_a_lock_are_in_it_with_their_like_only_and_each_gets_in(
    real_server: RealServer, tmp_path: Path
) -> None:
    chance = random.Random(0)  # noqa: S311 - to be repeatable, not secret
    # Longer than a lease, a look and what a group's waiters sleep at most.
    patient = 15.0
    plan = Plan(
        [real_server.url],
        ["reader", "reader", "exclusive", "permit", "permit"],
        seconds=30.0,
        callers=4,
        leases=[0.1, 0.3, 1.0],
        waits=[0.0, 0.05, patient, patient],
        renewed=0.3,
        killed=0.01,
    )

    def stop_some(crew: Crew) -> None:
        every(0.5, lambda: crew.stop_one(chance.choice([0.05, 0.2, 0.5])), 28.0)

    found = storm(tmp_path, [plan] * 3, stop_some)

    found.tell("readers, writers and permits, stopped and killed")
    kinds = Counter(stay.kind for stay in found.stays)
    assert min(kinds[kind] for kind in ("reader", "exclusive", "permit")) >= 100
    assert found.doubles == []
    assert found.fences_back == 0
    assert [one for one in found.refused if one[1] >= patient] == []


@pytest.mark.parametrize(
    ("stays", "doubles"),
    [
        ("reader 0 2, reader 1 3", 0),
        ("reader 0 2, exclusive 2 3", 0),
        ("reader 0 2, exclusive 1 3", 1),
        ("exclusive 0 2, exclusive 1 3", 1),
        (", ".join(["permit 0 9"] * PERMITS), 0),
        (", ".join(["permit 0 9"] * (PERMITS + 1)), 1),
    ],
)
def test_who_is_in_with_whom_he_must_not_be_is_seen(stays: str, doubles: int) -> None:
    parts = [stay.split() for stay in stays.split(", ")]
    notes: list[list[Any]] = [
        ["stay", kind, "a", 0, int(began), int(ended), 1] for kind, began, ended in parts
    ]

    assert len(History(notes).doubles) == doubles


@STORM
@pytest.mark.parametrize("in_tasks", [True, False], ids=["tasks", "threads"])
def test_nobody_is_in_together_and_nobody_is_forgotten(
    real_server: RealServer, tmp_path: Path, in_tasks: bool
) -> None:
    plan = Plan(
        [real_server.url],
        keys="abcde",
        seconds=20.0,
        callers=60,
        in_tasks=in_tasks,
        # Who is not woken would sleep for as long as the lease of the one before.
        leases=[60.0],
        waits=[60.0],
        renewed=0.0,
        work=0.004,
        cancelled=0.1 if in_tasks else 0.0,
    )

    found = storm(tmp_path, [plan], lambda crew: every(1.0, lambda: cut(real_server), 18.0))

    found.tell(f"waiters whose connections are cut, {'tasks' if in_tasks else 'threads'}")
    assert len(found.stays) > 100
    assert found.doubles == []
    assert found.longest_wait < 10


# Servers fail


def callers(urls: list[str], where: str = "server", seconds: float = 10.0) -> list[Plan]:
    """Return the plans of six processes, of which two have tasks; not those on several masters."""
    one = Plan(urls, where=where, seconds=seconds, timeout=1.0, long=0.01)
    some = one._replace(in_tasks=True, callers=3)
    return [one] * 6 if where == "masters" else [*[one] * 4, *[some] * 2]


def in_the_midst(trouble: Callable[[], object]) -> Callable[[Crew], object]:
    def work(_: Crew) -> object:
        time.sleep(2)
        return trouble()

    return work


def kill(server: RealServer) -> None:
    server.kill()
    time.sleep(0.5)
    server.start()


def stop(server: RealServer) -> None:
    """End it in order, as a service manager does, and start it again."""
    server.client().shutdown()
    kill(server)


def freeze(*servers: RealServer) -> None:
    """Have them stand still for longer than a lease."""
    for server in servers:
        server.pause()
    time.sleep(1.5 * LEASE)
    for server in servers:
        server.resume()


def pause(server: RealServer) -> None:
    every(2, lambda: command(server.client(), "CLIENT PAUSE", 700))


def cut_off(server: RealServer) -> None:
    every(0.3, functools.partial(cut, server))


def forget_scripts(server: RealServer) -> None:
    every(0.1, server.client().script_flush)


@STORM
@ALONE
@pytest.mark.parametrize("what", [kill, stop, freeze, pause, cut_off, forget_scripts])
def test_one_server_that_forgets_nothing_has_one_holder(
    tmp_path: Path, what: Callable[[RealServer], None]
) -> None:
    with RealServer(any_binary(), *WRITES_ALL) as server:
        found = storm(tmp_path, callers([server.url]), in_the_midst(lambda: what(server)))

    found.tell(f"one server, {what.__name__}")
    assert len(found.stays) > 5
    assert found.doubles == []


@STORM
@ALONE
def test_one_server_that_comes_back_empty_has_two_until_the_first_hears_of_it(
    tmp_path: Path,
) -> None:
    with RealServer(any_binary()) as server:
        restarts = in_the_midst(lambda: every(1, server.restart))
        found = storm(tmp_path, callers([server.url]), restarts)

    found.tell("one server, restart, empty")
    assert len(found.stays) > 5
    assert all(double.seconds <= LEASE for double in found.doubles)


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(4.0, marks=pytest.mark.matrix), pytest.param(30.0, marks=[STORM, ALONE])],
)
def test_a_cluster_whose_slot_moves_has_one_holder_and_loses_no_lock(
    tmp_path: Path, seconds: float
) -> None:
    with Cluster(any_binary()) as cluster:
        slot = cluster.slot_of("lock:a")

        def move(_: Crew) -> None:
            every(0.3, lambda: cluster.move(slot, pause=0.03), seconds - 2)

        # One process with a thread, and two with tasks, at least.
        plans = callers(cluster.urls, "cluster", seconds)[0 if seconds > 5 else 3 :]
        found = storm(tmp_path, plans, move)

    found.tell("cluster, reshard")
    assert len(found.stays) > 5
    assert found.doubles == []
    assert found.lost == []


def kill_node(node: RealServer) -> None:
    node.kill()


def freeze_node(node: RealServer) -> None:
    """Have it stand still until its replica has taken over, and go on."""
    node.pause()
    time.sleep(5)
    node.resume()


@pytest.fixture
def replicated() -> Iterator[tuple[Cluster, RealServer]]:
    """Give a cluster of three primaries, and the one that has the lock, which has a replica."""
    with Cluster(any_binary()) as cluster, contextlib.ExitStack() as stack:
        home = cluster.owner_of(cluster.slot_of("lock:a"))
        stack.enter_context(cluster.replica_of(home))
        yield cluster, home


@STORM
@ALONE
@pytest.mark.parametrize("what", [kill_node, freeze_node])
def test_a_cluster_that_fails_over_has_two_for_a_lease_at_most(
    tmp_path: Path,
    replicated: tuple[Cluster, RealServer],
    what: Callable[[RealServer], None],
) -> None:
    cluster, home = replicated
    # The node that fails is not the one that clients begin with.
    urls = [node.url for node in cluster.nodes if node is not home]
    found = storm(tmp_path, callers(urls, "cluster"), in_the_midst(lambda: what(home)))

    found.tell(f"cluster, {what.__name__}")
    assert len(found.stays) > 5
    assert all(double.seconds <= LEASE for double in found.doubles)


def kill_two(servers: list[RealServer]) -> None:
    """Kill two, which come back, empty, when what they had granted is over."""
    for server in servers[:2]:
        server.kill()
    time.sleep(1.5 * LEASE)
    for server in servers[:2]:
        server.start()


def freeze_two(servers: list[RealServer]) -> None:
    freeze(*servers[:2])


def freeze_three(servers: list[RealServer]) -> None:
    freeze(*servers[:3])


def cut_all(servers: list[RealServer]) -> None:
    for server in servers * 12:
        cut(server)
        time.sleep(0.1)


@STORM
@ALONE
@pytest.mark.parametrize("what", [kill_two, freeze_two, freeze_three, cut_all])
def test_five_masters_have_one_holder(
    tmp_path: Path, what: Callable[[list[RealServer]], None]
) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(RealServer(any_binary())) for _ in range(5)]
        urls = [server.url for server in servers]
        found = storm(tmp_path, callers(urls, "masters"), in_the_midst(lambda: what(servers)))

    found.tell(f"redlock, {what.__name__}")
    assert len(found.stays) > 5
    assert found.doubles == []
