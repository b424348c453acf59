"""A lock on five servers of which some are dead, hang, or answer late."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost, LockUnavailable, signals
from django_setnx_lock.core import Inspector, Redlock, State
from tests.faults.points import Points
from tests.faults.proxy import Proxy
from tests.processes import Stopwatch, eventually, figure, may_be_late
from tests.servers import RealServer, any_binary
from tests.support import seams
from tests.support.drivers import growth
from tests.support.locks import INDEX, command
from tests.support.seams import process_key
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("five masters")

ROOT = Path(__file__).parents[2]
NAMES = ["r1", "r2", "r3", "r4", "r5"]
NAME = "lock:a"
# Seconds that a master has, as machines may stand still; and where one is waited for in vain, or a
# lease, of which this is a third, is to end.
PATIENT, SOON = 5, 2
# Seconds that one has where times are measured, and what may be added to them.
PACES = pytest.mark.parametrize(
    ("master", "slack"),
    [
        pytest.param(1.0, 3.0, id="busy"),
        # Less than if they were asked one after the other.
        pytest.param(0.5, 0.4, marks=[pytest.mark.storm, pytest.mark.alone], id="quiet"),
    ],
)


class Five:
    """The five masters and their clients."""

    def __init__(self, servers: list[RealServer]) -> None:
        self.servers = servers
        for server in servers:
            server.flush()
        self.clients = [server.client(socket_timeout=5) for server in servers]

    def lock(self, clients: list[redis.Redis] | None = None, **options: Any) -> Redlock:
        options = {"master_timeout": PATIENT, **options}
        return Redlock(clients or self.clients, NAME, names=NAMES, key="a", **options)

    def left(self) -> list[int]:
        """Whether the lock stands at those that are there."""
        pairs = zip(self.servers, self.clients, strict=True)
        return [int(client.exists(NAME)) for server, client in pairs if server.is_running]

    def used(self, **options: Any) -> None:
        """Have connections to all, and the scripts known."""
        with self.lock(**options):
            pass


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RealServer]]:
    binary = any_binary()
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RealServer(binary)) for _ in NAMES]


@pytest.fixture
def five(servers: list[RealServer]) -> Iterator[Five]:
    yield Five(servers)
    seams.reset()
    for server in servers:
        if server.is_running:
            server.resume()
        server.close_clients()


@contextlib.contextmanager
def proxied(server: RealServer) -> Iterator[Proxy]:
    """Give a proxy; nobody connects to it any more when it ends."""
    with Proxy(server.port) as proxy:
        try:
            yield proxy
        finally:
            seams.reset()
            eventually(lambda: "setnx-lock-connect" not in {t.name for t in threading.enumerate()})


# What may be the matter with a server.
FAULTS = {"dead": RealServer.kill, "hanging": RealServer.pause}


@PACES
@pytest.mark.parametrize("is_used", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("fault", FAULTS)
def test_two_of_five_that_are_no_more_cost_the_master_timeout(
    five: Five, fault: str, is_used: bool, master: float, slack: float
) -> None:
    if is_used:
        five.used()
    for server in five.servers[:2]:
        FAULTS[fault](server)

    with Stopwatch() as watch:
        held = five.lock(master_timeout=master).take(0)
        taken = watch.seconds
    with Stopwatch() as watch:
        held.release()
        released = watch.seconds

    figure(f"two of five {fault}: taken in {taken:.4f} s, released in {released:.4f} s")
    assert taken < master + slack
    assert released < master + slack
    for server in five.servers[:2]:
        if server.is_running:
            server.resume()
    eventually(lambda: not any(five.left()))


@PACES
@pytest.mark.parametrize(
    ("kinds", "causes"),
    [
        ("dead dead dead", "r2: unreachable, r3: unreachable, r4: unreachable"),
        ("hanging hanging hanging", "r2: timeout, r3: timeout, r4: timeout"),
        ("dead hanging slow", "r2: unreachable, r3: timeout, r4: timeout"),
    ],
    ids=["dead", "hanging", "each another"],
)
def test_with_three_of_five_gone_it_is_refused_and_nothing_is_left_on_the_living(
    five: Five, kinds: str, causes: str, master: float, slack: float
) -> None:
    five.used()
    with contextlib.ExitStack() as stack:
        clients = list(five.clients)
        for at, kind in enumerate(kinds.split(), 1):
            if kind == "slow":
                proxy = stack.enter_context(proxied(five.servers[at]))
                proxy.delay_replies(10 * master)
                clients[at] = proxy.client()
            else:
                FAULTS[kind](five.servers[at])

        with Stopwatch() as watch, pytest.raises(LockUnavailable) as caught:
            five.lock(clients, master_timeout=master).take(0)
        refused = watch.seconds

    figure(f"{kinds}: refused in {refused:.4f} s: {caught.value}")
    assert caught.value.cause in causes
    assert "2 of 5 masters answered" in str(caught.value)
    assert f"({causes})" in str(caught.value)
    assert refused < master + slack
    assert [int(five.clients[at].exists(NAME)) for at in (0, 4)] == [0, 0]


def test_what_hung_when_it_was_asked_in_vain_keeps_nothing_when_it_goes_on(five: Five) -> None:
    five.used()
    for server in five.servers[1:4]:
        server.pause()
    with pytest.raises(LockUnavailable):
        five.lock(timeout=60, master_timeout=SOON).take(0)

    for server in five.servers[1:4]:
        server.resume()

    # Long before the lease ends. That it was given up there is seen by its token, which is refused.
    gone = f"{{{NAME}}}:gone"
    eventually(lambda: all(client.zcard(gone) for client in five.clients[1:4]))
    eventually(lambda: five.left() == [0] * 5)


def test_a_release_reaches_a_master_that_hung_meanwhile(five: Five) -> None:
    held = five.lock(timeout=60, master_timeout=SOON).take(0)
    five.servers[0].pause()

    held.release()
    five.servers[0].resume()

    eventually(lambda: five.left() == [0] * 5)


@PACES
def test_a_slow_master_costs_the_master_timeout_at_most(
    five: Five, master: float, slack: float
) -> None:
    with proxied(five.servers[0]) as proxy:
        clients = [proxy.client(), *five.clients[1:]]
        with five.lock(clients, master_timeout=master):
            pass
        proxy.delay_replies(10 * master)

        took = []
        for _ in range(3):
            with Stopwatch() as watch:
                held = five.lock(clients, master_timeout=master).take(0)
                took.append(watch.seconds)
            held.release()

    figure(f"one of five slow: taken in {max(took):.4f} s at most")
    assert max(took) < master + slack


@PACES
def test_a_wait_ends_in_time_although_a_master_hangs(
    five: Five, master: float, slack: float
) -> None:
    five.used()
    five.lock(master_timeout=master).take(0)
    five.servers[4].pause()

    with Stopwatch() as watch, pytest.raises(LockBusy):
        five.lock(master_timeout=master).take(0.5)
    waited = watch.seconds

    figure(f"a wait of 0.5 s with one of five hanging took {waited:.4f} s")
    # It asks a last time, and takes back what that has left.
    assert watch.passed >= 0.5
    assert waited < 0.5 + 2 * master + 2 * slack


@may_be_late(1)
def test_who_waits_has_it_soon_after_its_release(five: Five, late: float) -> None:
    held, waits = five.lock().take(0), threading.Event()

    def tell(**_: object) -> None:
        waits.set()

    # As long as there is this function.
    signals.lock_waiting.connect(tell)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(five.lock().take, 10)
        assert waits.wait(10)
        held.release()
        with Stopwatch() as watch:
            waiter.result(10).check()
            waited = watch.seconds

    figure(f"had {waited:.4f} s after its release")
    assert waited < late


def test_servers_that_were_restarted_or_cut_their_clients_are_connected_to_anew(
    five: Five,
) -> None:
    five.used()
    for server in five.servers[:2]:
        server.restart()
    for client in five.clients[2:]:
        command(client, "CLIENT", "KILL", "TYPE", "normal")

    held = five.lock().take(0)

    assert five.left() == [1] * 5
    held.release()


def test_servers_that_forgot_the_scripts_are_told_them_again(five: Five) -> None:
    held = five.lock().take(0)
    for client in five.clients:
        client.script_flush()

    held.check()
    held.reacquire()
    held.release()

    assert five.left() == [0] * 5


def test_an_answer_that_came_too_late_is_not_taken_for_one_to_the_next_request(five: Five) -> None:
    five.used(master_timeout=SOON)
    for client in five.clients:
        client.set(NAME, "foreign")
    for server in five.servers[:3]:
        server.pause()
    with pytest.raises(LockUnavailable):
        five.lock(master_timeout=SOON).locked()
    for server in five.servers[:3]:
        server.resume()
    for client in five.clients:
        client.delete(NAME)

    assert not five.lock(master_timeout=SOON).locked()


# Interrupts.


def points_of_an_acquire(five: Five, at: int = 0) -> list[str]:
    """Acquire the lock, interrupted at step ``at``; return the steps until then."""
    points = Points(at)
    with pytest.MonkeyPatch.context() as patched:
        points.watch(five.clients[0], patched)
        with contextlib.suppress(KeyboardInterrupt):
            held = five.lock(timeout=60).take(0)
            with points.looking_away():
                held.release()
    return points.passed


def test_an_acquire_interrupted_anywhere_is_undone_on_all(five: Five) -> None:
    five.used()
    at = 1
    while len(passed := points_of_an_acquire(five, at)) >= at:
        eventually(lambda: five.left() == [0] * 5)
        at += 1

    assert passed[-1] == "after read_response"
    assert passed.count("after send_packed_command") >= len(NAMES)


# Exclusion.


def test_of_three_who_ask_the_masters_in_different_orders_two_never_have_it(five: Five) -> None:
    orders = [five.clients, five.clients[::-1], five.clients[2:] + five.clients[:2]]
    gate = threading.Barrier(len(orders))

    def has_it(order: list[redis.Redis], name: str) -> bool:
        lock = Redlock(order, name, timeout=60, master_timeout=1)
        gate.wait(10)
        return lock.acquire(blocking=False)

    with ThreadPoolExecutor(len(orders)) as pool:
        for number in range(60):
            found = pool.map(has_it, orders, [f"lock:{number}"] * len(orders))
            assert sum(found) <= 1


# Renewal and loss.


def test_it_is_renewed_by_those_that_are_left(five: Five) -> None:
    held = five.lock(renew=True, master_timeout=SOON).take(0)
    five.servers[0].pause()
    five.servers[1].kill()
    has_grown = growth(held, after=DUE)
    seams.pass_time(DUE)

    eventually(has_grown)

    held.check()
    held.release()


@contextlib.contextmanager
def cut_off_holder(five: Five, **options: Any) -> Iterator[Any]:
    """Hold it, and reach no more than two masters from then on."""
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(proxied(server)) for server in five.servers[:3]]
        clients = [proxy.client() for proxy in proxies] + five.clients[3:]
        options = {"timeout": 3 * SOON, "master_timeout": SOON, "renew": True, **options}
        held = five.lock(clients, **options).take(0)
        for proxy in proxies:
            proxy.refuse()
        yield held


def test_who_cannot_renew_at_a_majority_has_lost_it_before_another_has_it(five: Five) -> None:
    with cut_off_holder(five) as held:
        # With no renewal in between, the others' leases end for the minority, too.
        other = five.lock(timeout=60).take(40)

        assert held.lost
        other.release()


def test_a_loss_is_told_and_why(five: Five, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    with cut_off_holder(five, timeout=30, on_lost=lambda _: told.set()) as held:
        seams.pass_time(DUE)
        eventually(lambda: "cannot renew" in caplog.text)
        seams.pass_time(30 - DUE)

        assert told.wait(20)
        with pytest.raises(LockLost, match=r"could not be renewed .* 2 of 5 masters answered"):
            held.check()
    assert held.token not in caplog.text


def test_many_are_renewed_in_one_write_to_each_master(five: Five) -> None:
    with proxied(five.servers[0]) as proxy:
        clients = [proxy.client(), *five.clients[1:]]
        held = [
            Redlock(clients, f"lock:{number}", master_timeout=PATIENT, renew=True).take(0)
            for number in range(20)
        ]
        before, have_grown = proxy.round_trips, growth(*held, after=DUE)
        seams.pass_time(DUE)
        eventually(have_grown)
        trips = proxy.round_trips - before

        assert all(one.owned() for one in held)
    figure(f"{len(held)} locks renewed in {trips} round trips")
    assert trips < len(held)


@pytest.mark.matrix
def test_each_master_is_told_that_the_process_lives(five: Five) -> None:
    processes = process_key("lock:")
    with five.lock(timeout=300, renew=True, index=INDEX):
        seams.pass_time(DUE)
        eventually(lambda: all(client.keys(f"{processes}*") for client in five.clients))

        states = {Inspector(client, "lock:").get(NAME).state for client in five.clients}
        assert states == {State.HELD}


def test_an_extension_whose_reply_one_master_cut_off_is_added_there_once(five: Five) -> None:
    with Proxy(five.servers[0].port) as proxy:
        clients = [proxy.client(socket_timeout=5), *five.clients[1:]]
        held = five.lock(clients, timeout=20).take(0)
        # Each of them knows the script then.
        held.extend(1)
        dropped = proxy.drop_next_reply(b"EVALSHA")

        held.extend(100)

        assert dropped.wait(10)
        eventually(lambda: five.clients[0].pttl(NAME) > 100_000)
        assert all(100_000 < client.pttl(NAME) < 125_000 for client in five.clients)
        held.release()


# What resolving the first name imports comes from a disk that is busy. It ends with the lock held.
SLOW_DISK = """
import importlib.abc, sys, time
import redis
from django_setnx_lock.core import Redlock

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "stringprep":
            time.sleep(3)

sys.meta_path.insert(0, Slow())
clients = [redis.Redis(port=int(port)) for port in sys.argv[1:]]
held = Redlock(clients, "lock:a", master_timeout=2, renew=True).take(0)
print("held")
"""


@pytest.mark.matrix
def test_what_a_process_imports_at_its_first_lock_is_not_taken_off_the_time(five: Five) -> None:
    ports = [str(server.port) for server in five.servers]

    ended = subprocess.run(
        [sys.executable, "-c", SLOW_DISK, *ports], cwd=ROOT, capture_output=True, timeout=30
    )

    assert (ended.stdout, ended.stderr) == (b"held\n", b"")
