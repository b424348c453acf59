"""A lock on five servers of which some are dead, hang, or answer late."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost, LockUnavailable, signals
from django_setnx_lock.core import Inspector, Redlock, State
from tests.faults.points import Points
from tests.faults.proxy import Proxy
from tests.processes import FORKS, Stopwatch, eventually, figure, may_be_late
from tests.servers import RealServer, any_binary
from tests.support import seams
from tests.support.locks import INDEX, command
from tests.support.renewals import IS_RENEWED, end_of, is_longer
from tests.support.seams import process_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        self.clients: list[redis.Redis] = []

    def begin(self) -> None:
        """Have all of them there, and empty."""
        for server in self.servers:
            server.flush()
        self.clients = [server.client(socket_timeout=5) for server in self.servers]

    def lock(self, clients: list[redis.Redis] | None = None, **options: Any) -> Redlock:
        options = {"master_timeout": PATIENT, **options}
        return Redlock(clients or self.clients, NAME, names=NAMES, key="a", **options)

    def left(self) -> list[int]:
        """Whether the lock stands at those that are there."""
        there = [
            client
            for server, client in zip(self.servers, self.clients, strict=True)
            if server.is_running
        ]
        return [int(client.exists(NAME)) for client in there]

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
    five = Five(servers)
    five.begin()
    yield five
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
            eventually(lambda: not any(map(is_connecting, threading.enumerate())))


def is_connecting(thread: threading.Thread) -> bool:
    return thread.name == "setnx-lock-connect"


@contextlib.contextmanager
def waiting_calls(listener: Callable[[], object]) -> Iterator[None]:
    """Have ``listener`` called when somebody begins to wait."""

    def tell(**_: object) -> None:
        listener()

    signals.lock_waiting.connect(tell)
    try:
        yield
    finally:
        signals.lock_waiting.disconnect(tell)


# What may be the matter with a server, and the servers that it is the matter with.
def dead(server: RealServer) -> None:
    server.kill()


def hanging(server: RealServer) -> None:
    server.pause()


@PACES
@pytest.mark.parametrize("is_used", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("fault", [dead, hanging])
def test_two_of_five_that_are_no_more_cost_the_master_timeout(
    five: Five, fault: Callable[[RealServer], None], is_used: bool, master: float, slack: float
) -> None:
    if is_used:
        five.used()
    for server in five.servers[:2]:
        fault(server)

    with Stopwatch() as watch:
        held = five.lock(master_timeout=master).take(0)
        taken = watch.seconds
    with Stopwatch() as watch:
        held.release()
        released = watch.seconds

    figure(f"two of five {fault.__name__}: taken in {taken:.4f} s, released in {released:.4f} s")
    assert taken < master + slack
    assert released < master + slack
    for server in five.servers[:2]:
        if server.is_running:
            server.resume()
    eventually(lambda: not any(five.left()))


@PACES
@pytest.mark.parametrize("fault", [dead, hanging])
def test_with_three_of_five_gone_it_is_refused_and_nothing_is_left_on_the_living(
    five: Five, fault: Callable[[RealServer], None], master: float, slack: float
) -> None:
    five.used()
    for server in five.servers[1:4]:
        fault(server)

    with Stopwatch() as watch, pytest.raises(LockUnavailable) as caught:
        five.lock(master_timeout=master).take(0)
    refused = watch.seconds

    figure(f"three of five {fault.__name__}: refused in {refused:.4f} s: {caught.value}")
    cause = "unreachable" if fault is dead else "timeout"
    assert caught.value.cause == cause
    assert "2 of 5 masters answered" in str(caught.value)
    assert f"(r2: {cause}, r3: {cause}, r4: {cause})" in str(caught.value)
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

    # Long before the lease ends. That the question had arrived is seen by what gave it up.
    eventually(lambda: all(map(has_given_up, five.clients[1:4])))
    assert five.left() == [0] * 5


def has_given_up(client: redis.Redis) -> bool:
    """Whether an attempt was given up there, besides the one that was released before."""
    # What a release leaves nothing of.
    return client.zcard(f"{{{NAME}}}:gone") == 1


def test_a_release_reaches_a_master_that_hung_meanwhile(five: Five) -> None:
    held = five.lock(timeout=60, master_timeout=2).take(0)
    five.servers[0].pause()

    held.release()
    five.servers[0].resume()

    eventually(lambda: five.left() == [0] * 5)


def test_what_a_release_cannot_reach_ends_with_the_lease(five: Five) -> None:
    with proxied(five.servers[0]) as proxy:
        held = five.lock([proxy.client(), *five.clients[1:]], timeout=60).take(0)
        proxy.refuse()

        held.release()

        assert five.left() == [1, 0, 0, 0, 0]
        assert 0 < five.clients[0].pttl(NAME) <= 60_000


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
def test_a_dead_a_hanging_and_a_slow_master_cost_it_together(
    five: Five, master: float, slack: float
) -> None:
    five.used()
    with proxied(five.servers[2]) as proxy:
        clients = [*five.clients[:2], proxy.client(), *five.clients[3:]]
        proxy.delay_replies(10 * master)
        five.servers[0].kill()
        five.servers[1].pause()

        with Stopwatch() as watch, pytest.raises(LockUnavailable) as caught:
            five.lock(clients, master_timeout=master).take(0)
        refused = watch.seconds

    figure(f"one dead, one hanging, one slow: refused in {refused:.4f} s")
    assert "(r1: unreachable, r2: timeout, r3: timeout)" in str(caught.value)
    assert refused < master + slack
    assert [int(five.clients[at].exists(NAME)) for at in (3, 4)] == [0, 0]


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
    with waiting_calls(waits.set), ThreadPoolExecutor(1) as pool:
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


# Late answers.


def is_held_by_a_late_answer(five: Five) -> bool:
    """Whether an answer that came too late is taken for one to the next request."""
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
    return bool(five.lock(master_timeout=SOON).locked())


def test_late_answers_are_skipped(five: Five) -> None:
    assert not is_held_by_a_late_answer(five)


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


def rounds_with_two_holders(five: Five, rounds: int) -> int:
    """How often more than one of three has it, who ask the masters in different orders."""
    orders = [five.clients, five.clients[::-1], five.clients[2:] + five.clients[:2]]
    gate = threading.Barrier(len(orders))
    seen = 0

    def one(order: list[redis.Redis], name: str) -> bool:
        lock = Redlock(order, name, timeout=60, master_timeout=1)
        gate.wait(10)
        return lock.acquire(blocking=False)

    with ThreadPoolExecutor(len(orders)) as pool:
        for number in range(rounds):
            found = [pool.submit(one, order, f"lock:{number}") for order in orders]
            seen += sum(result.result(10) for result in found) > 1
    return seen


def test_two_never_have_it_at_once(five: Five) -> None:
    assert rounds_with_two_holders(five, 60) == 0


def test_under_the_lock_every_addition_counts(five: Five) -> None:
    counter = 0

    def add() -> None:
        nonlocal counter
        for _ in range(8):
            with five.lock(blocking_timeout=30):
                seen = counter
                time.sleep(0.002)
                counter = seen + 1

    with ThreadPoolExecutor(3) as pool:
        for result in [pool.submit(add) for _ in range(3)]:
            result.result(50)

    assert counter == 24


# Renewal and loss.


def test_it_is_renewed_for_longer_than_its_lease(five: Five) -> None:
    held = five.lock(timeout=3 * SOON, master_timeout=SOON, renew=True).take(0)
    five.servers[0].pause()
    five.servers[1].kill()
    end = end_of(held)

    eventually(lambda: is_longer(held, end))

    held.check()
    held.release()


@contextlib.contextmanager
def cut_off_holder(five: Five, **options: Any) -> Iterator[tuple[Any, list[Proxy]]]:
    """Hold it through proxies, which can be told to let nobody through."""
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(proxied(server)) for server in five.servers[:3]]
        clients = [proxy.client() for proxy in proxies] + five.clients[3:]
        options |= {"timeout": 3 * SOON, "master_timeout": SOON, "renew": True}
        yield five.lock(clients, **options).take(0), proxies


def is_lost_before_it_is_had(five: Five) -> bool:
    """Whether a holder that reaches a minority only knows of its loss when another has it."""
    with cut_off_holder(five) as (held, proxies):
        for proxy in proxies:
            proxy.refuse()
        # With no renewal in between, the others' leases end for the minority, too.
        other = five.lock(timeout=60).take(40)
        known = bool(held.lost)
        other.release()
        return known


def test_who_cannot_renew_at_a_majority_has_lost_it_before_another_has_it(five: Five) -> None:
    assert is_lost_before_it_is_had(five)


def test_a_loss_is_told_and_why(five: Five, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    with cut_off_holder(five, on_lost=lambda _: told.set()) as (held, proxies):
        for proxy in proxies:
            proxy.refuse()

        assert told.wait(20)
        with pytest.raises(LockLost, match=r"could not be renewed .* 2 of 5 masters answered"):
            held.check()
    assert held.token not in caplog.text


def test_a_minority_that_cannot_be_reached_changes_nothing(five: Five) -> None:
    with cut_off_holder(five) as (held, proxies):
        for proxy in proxies[:2]:
            proxy.refuse()
        end = end_of(held)

        eventually(lambda: is_longer(held, end))

        held.check()
        held.release()


def test_force_releases_of_a_majority_take_it_away(five: Five) -> None:
    held = five.lock().take(0)
    for client in five.clients[:3]:
        look = Inspector(client, "lock:")
        look.force_release(NAME, look.get(NAME).fingerprint, by="ann", reason="stuck")

    with pytest.raises(LockLost) as caught:
        held.check()

    assert (caught.value.forced_by, caught.value.reason) == ("ann", "stuck")


def test_many_are_renewed_in_one_write_to_each_master(five: Five) -> None:
    with proxied(five.servers[0]) as proxy:
        clients = [proxy.client(), *five.clients[1:]]
        held = [
            Redlock(
                clients, f"lock:{number}", timeout=3 * SOON, master_timeout=SOON, renew=True
            ).take(0)
            for number in range(20)
        ]
        before, ends = proxy.round_trips, [end_of(one) for one in held]
        eventually(lambda: all(map(is_longer, held, ends)))
        trips = proxy.round_trips - before

        assert all(one.owned() for one in held)
    figure(f"{len(held)} locks renewed in {trips} round trips")
    assert trips < len(held)


FORKING = (
    IS_RENEWED
    + """
import os, sys, time, redis
from django_setnx_lock import LockError
from django_setnx_lock.core import Redlock
from tests.processes import FORKS

clients = [redis.Redis(port=int(port)) for port in sys.argv[2:]]
held = Redlock(clients, "lock:a", timeout=6, renew=True, master_timeout=2).take(0)
child = FORKS[sys.argv[1]]()
if child == 0:
    try:
        held.release()
    except LockError as error:
        Redlock(clients, "lock:b", master_timeout=5).take(0).release()
        os._exit(7 if "parent" in str(error) else 1)
    os._exit(2)
status = os.waitpid(child, 0)[1]
assert is_renewed(held)
print(os.waitstatus_to_exitcode(status), held.owned())
"""
)


@pytest.mark.matrix
@pytest.mark.parametrize("fork", FORKS)
def test_a_fork_owns_nothing_and_a_process_that_holds_it_can_end(five: Five, fork: str) -> None:
    ports = [str(server.port) for server in five.servers]
    command = [sys.executable, "-W", "ignore", "-c", FORKING, fork, *ports]

    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )

    assert (done.stdout, done.stderr) == ("7 True\n", "")
    assert done.returncode == 0


# Its parent ends without letting go, and it has a lock of its own renewed.
FORKED_AWAY = (
    IS_RENEWED
    + """
import os, sys, time
import redis
from django_setnx_lock.core import Redlock
from tests.processes import FORKS

def take(name):
    return Redlock(clients, name, timeout=6, renew=True, master_timeout=2).take(0)

clients = [redis.Redis(port=int(port)) for port in sys.argv[2:]]
held = take("lock:a")
if FORKS[sys.argv[1]]():
    os._exit(0)
own = take("lock:b")
print(is_renewed(own), flush=True)
sys.stdin.read()
"""
)


@pytest.mark.matrix
def test_each_master_is_told_that_the_process_lives(five: Five) -> None:
    processes = process_key("lock:")
    with five.lock(timeout=300, renew=True, index=INDEX):
        eventually(lambda: all(client.keys(f"{processes}*") for client in five.clients))

        states = {Inspector(client, "lock:").get(NAME).state for client in five.clients}
        assert states == {State.HELD}


@pytest.mark.matrix
@pytest.mark.parametrize("fork", FORKS)
def test_a_fork_does_not_renew_what_its_parent_held(five: Five, fork: str) -> None:
    ports = [str(server.port) for server in five.servers]
    command = [sys.executable, "-W", "ignore", "-c", FORKED_AWAY, fork, *ports]

    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        is_own_renewed = parent.stdout.readline()
        eventually(lambda: not any(five.left()))
        # Also the fork has ended then.
        parent.communicate(timeout=20)

    assert is_own_renewed == "True\n"


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


# What resolving the first name imports comes from a disk that is busy.
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
with Redlock(clients, "lock:a", master_timeout=2, blocking=False):
    print("held")
"""


@pytest.mark.matrix
def test_what_a_process_imports_at_its_first_lock_is_not_taken_off_the_time(five: Five) -> None:
    ports = [str(server.port) for server in five.servers]

    ended = subprocess.run(
        [sys.executable, "-c", SLOW_DISK, *ports], cwd=ROOT, capture_output=True, timeout=30
    )

    assert (ended.stdout, ended.stderr) == (b"held\n", b"")
