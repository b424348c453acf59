"""Under gevent and eventlet, patched before the import of this app or after it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import Stopwatch, figure
from tests.servers import RealServer, free_port, server_kinds
from tests.web_servers import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is missing"),
    pytest.mark.timeout(150),
]
WITH_EVENTLET = pytest.mark.skipif(
    importlib.util.find_spec("eventlet") is None, reason="eventlet is not installed"
)
CALLERS = 50
HOLD = 0.04

GUNICORN = [
    sys.executable,
    "-m",
    "gunicorn",
    "tests.served:application",
    "--workers=1",
    "--no-control-socket",
]
# What gunicorn's own eventlet worker did until it was removed in gunicorn 26.
EVENTLET = """
import sys
import eventlet
if sys.argv[2] == "early":
    eventlet.monkey_patch()
from tests.served import application
if sys.argv[2] == "late":
    eventlet.monkey_patch()
from eventlet import wsgi
wsgi.server(eventlet.listen(("127.0.0.1", int(sys.argv[1]))), application, log_output=False)
"""
SERVERS = {
    "gevent": [*GUNICORN, "--worker-class=gevent"],
    "gevent-preload": [*GUNICORN, "--worker-class=gevent", "--preload"],
    "gthread": [*GUNICORN, "--worker-class=gthread", "--threads=60"],
    "eventlet": [sys.executable, "-c", EVENTLET, "PORT", "early"],
    "eventlet-late": [sys.executable, "-c", EVENTLET, "PORT", "late"],
}
LEFT = {
    "gevent-preload": [pytest.mark.matrix],
    "gthread": [pytest.mark.matrix],
    "eventlet": [WITH_EVENTLET, pytest.mark.matrix],
    "eventlet-late": [WITH_EVENTLET, pytest.mark.matrix],
}
SERVED = pytest.mark.parametrize(
    "served",
    [
        # One process runs the tests of a server, which it starts once.
        pytest.param(kind, marks=[*LEFT.get(kind, ()), pytest.mark.xdist_group(kind)])
        for kind in SERVERS
    ],
    indirect=True,
)


class Served(WebServer):
    def answer(self, path: str) -> dict[str, Any]:
        status, text = self.get(path)
        assert status == 200, text[-2000:]
        return dict(json.loads(text))


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, running_server: Callable[[str], RealServer]
) -> Iterator[Served]:
    server = running_server(server_kinds()[0])
    port = free_port()
    command = [str(port) if one == "PORT" else one for one in SERVERS[request.param]]
    if "gunicorn" in command:
        command.append(f"--bind=127.0.0.1:{port}")
    found = Served(port)
    with found.started(command, TEST_SERVER_URL=server.url):
        yield found


def at_once(served: Served, seconds: float) -> list[dict[str, Any]]:
    """Give the answers to many who ask for one lock at once, of whom one is inside at a time."""
    path = f"/hold/a/?seconds={seconds}"
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda _: served.answer(path), range(CALLERS)))

    assert max(answer["inside"] for answer in answers) == 1
    assert len({answer["fence"] for answer in answers}) == CALLERS
    assert all(answer["again"] == answer["fence"] for answer in answers)
    assert len({answer["pid"] for answer in answers}) == 1
    return answers


@SERVED
@pytest.mark.usefixtures("real_server")
def test_of_many_requests_of_one_worker_one_is_inside(served: Served) -> None:
    at_once(served, 0.01)


@pytest.mark.storm
@pytest.mark.alone
@pytest.mark.usefixtures("real_server")
@pytest.mark.parametrize("served", ["gevent", "gevent-preload"], indirect=True)
def test_one_after_the_other_they_take_little_longer_than_their_work(served: Served) -> None:
    answers = at_once(served, HOLD)
    # What a busy machine adds to each is none of the lock's.
    ideal = sum(answer["ended"] - answer["began"] for answer in answers)
    took = max(one["ended"] for one in answers) - min(one["began"] for one in answers)
    figure(f"{CALLERS} requests of {ideal:.2f} s took {took:.2f} s")

    assert took < 1.2 * ideal


@SERVED
@pytest.mark.usefixtures("real_server")
def test_a_lock_is_renewed_while_others_of_the_worker_go_on(served: Served) -> None:
    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(served.answer, "/hold/a/?seconds=2.5&timeout=2")
        longest = 0.0
        while not holding.done():
            with Stopwatch() as watch:
                served.answer("/")
            longest = max(longest, watch.seconds)
            time.sleep(0.02)

    # The view asks Redis at the end whether the lock is held still.
    assert holding.result()["inside"] == 1
    # Less than the view takes, for which the worker would keep the others.
    assert longest < 2


def program(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` as a program of its own, and return what it says."""
    # gevent reads the metadata of all that is installed, again and again: where memory is short,
    # from the disk. A dump says where one hangs.
    code = f"import faulthandler; faulthandler.dump_traceback_later(90, exit=True)\n{code}"
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


# Argument: what patches, and when. Prints whether the lock is held still when its lease was over.
ENDED = """
import gc, sys, time
def patch():
    if sys.argv[1] == "gevent":
        from gevent import monkey
        monkey.patch_all()
    else:
        global eventlet
        import eventlet
        eventlet.monkey_patch()
if sys.argv[2] == "early":
    patch()
import redis
from django_setnx_lock.core import RedisLock
client = redis.Redis.from_url(sys.argv[3])
if sys.argv[2] == "held":
    before = RedisLock(client, "lock:before", 3, renew=True).take()
    # gevent may hang when two threads import at once while it patches or makes its first hub: the
    # renewal imports when it is first due, after a second, and has the next second off.
    renewed = client.pttl("lock:before")
    while client.pttl("lock:before") <= renewed:
        renewed = client.pttl("lock:before")
if sys.argv[2] != "early":
    patch()
if sys.argv[2] == "held":
    import gevent
    gevent.get_hub()
kept = []
def take(name):
    kept.append(RedisLock(client, name, 1.5, renew=True).take())
    if name == "lock:goes on":
        time.sleep(60)
if sys.argv[1] == "gevent":
    import gevent
    spawn = gevent.spawn
else:
    spawn = eventlet.spawn
ended, going = spawn(take, "lock:ended"), spawn(take, "lock:goes on")
time.sleep(0.1)
main = RedisLock(client, "lock:main", 1.5, renew=True).take()
time.sleep(2.2)
lost = {held.name: held.lost for held in [*kept, main]}
if sys.argv[2] == "held":
    lost["lock:before"] = before.lost or client.pttl("lock:before") < 1_500
print(lost == {name: name == "lock:ended" for name in lost}, len(lost), lost)
"""


@pytest.mark.parametrize(
    ("what", "when"),
    [
        pytest.param("gevent", "early", marks=pytest.mark.matrix),
        ("gevent", "late"),
        pytest.param("gevent", "held", marks=pytest.mark.matrix),
        pytest.param("eventlet", "early", marks=[WITH_EVENTLET, pytest.mark.matrix]),
        pytest.param("eventlet", "late", marks=[WITH_EVENTLET, pytest.mark.matrix]),
    ],
)
def test_what_a_greenlet_that_has_ended_holds_is_renewed_no_longer(
    real_server: RealServer, what: str, when: str
) -> None:
    done = program(ENDED, what, when, real_server.url)

    assert done.stdout.startswith("True "), done.stdout + done.stderr
    assert done.stderr.count("has ended without letting it go") == 1


# Takes a lock in a process that patches later, and has it again in its greenlets, or not.
HELD_WHILE_PATCHED = """
import sys
import redis
from django_setnx_lock.core import RedisLock
client = redis.Redis.from_url(sys.argv[1])
def mine():
    return RedisLock(client, "lock:a", reentrant=True, renew=True, blocking=False)
held = mine().take()
from gevent import monkey
monkey.patch_all()
import gevent
print(gevent.spawn(mine().acquire).get(), mine().acquire(), held.owned())
"""


def test_a_lock_held_while_greenlets_come_is_the_main_greenlets(real_server: RealServer) -> None:
    done = program(HELD_WHILE_PATCHED, real_server.url)

    assert done.stdout.split() == ["False", "True", "True"], done.stderr


# Greenlets at a Redlock: while one waits for the servers, others run.
REDLOCK = """
import sys, time
import redis
from django_setnx_lock.core import Redlock
from gevent import monkey
monkey.patch_all()
import gevent
clients = [redis.Redis.from_url(url) for url in sys.argv[1:]]
def mine():
    return Redlock(
        clients, "lock:a", 5, reentrant=True, blocking_timeout=20, master_timeout=1
    )
inside, most = [], []
def hold(number):
    with mine(), mine():
        inside.append(number)
        time.sleep(0.02)
        most.append(len(inside))
        inside.remove(number)
tasks = [gevent.spawn(hold, number) for number in range(5)]
ticks = 0
while not all(task.dead for task in tasks):
    time.sleep(0.005)
    ticks += 1
print(max(most), len(most), ticks > 10)
"""


@pytest.fixture
def urls(real_server: RealServer) -> Iterator[list[str]]:
    with RealServer(real_server.binary) as second, RealServer(real_server.binary) as third:
        yield [real_server.url, second.url, third.url]


@pytest.mark.matrix
def test_one_greenlet_is_inside_a_redlock(urls: list[str]) -> None:
    done = program(REDLOCK, *urls)

    assert done.stdout.split() == ["1", "5", "True"], done.stderr
