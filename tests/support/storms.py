"""Storms: processes that contend for locks, whatever goes wrong, and what they did meanwhile.

Run as ``python -m tests.support.storms FOLDER SEED PLAN``, with a :class:`Plan` as JSON. A process
writes ``ready-SEED`` in FOLDER, and begins when there is the file of its sign. A line each, it
notes every stay under a lock and every wait in vain. Who takes a lock when there is the file
``stay`` removes it, writes ``staying``, and keeps that lock for so many seconds as the file says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import redis

from django_setnx_lock import LockBusy, LockError, lock
from django_setnx_lock.core import MultiLock, RedisLock, Redlock
from tests.legacy.clients import KINDS as LEGACY
from tests.legacy.clients import SUFFIX
from tests.processes import eventually, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
PERMITS = 3
# Options of locks of ours on one server, or on one cluster.
OURS: dict[str, dict[str, Any]] = {
    "exclusive": {},
    "reader": {"shared": True, "reentrant": True},
    "permit": {"limit": PERMITS},
    "timestamp-s": {"protocol": "timestamp-s"},
    "timestamp-ms": {"protocol": "timestamp-ms"},
}
# The sign that ends a storm before its time.
OVER = "over"
# How many may be in together. Of the rest, one.
TOGETHER = {"reader": math.inf, "permit": PERMITS}


class Plan(NamedTuple):
    """What the callers of one process do.

    ``kinds``: of which each turn takes a lock at random. ``where``: ``server``, ``cluster`` (of
    which the first URL is a node), or ``masters``. ``waits``: for how long, at most. ``work``: so
    many seconds, at most. The rest are chances: of a lock that is renewed, and of a turn that lasts
    for most of a lease, or beyond it, that is cancelled, or in which the process kills itself.
    ``sign``: at which they begin.
    """

    urls: Sequence[str]
    kinds: Sequence[str] = ("exclusive",)
    where: str = "server"
    keys: str = "a"
    seconds: float = 10.0
    callers: int = 1
    in_tasks: bool = False
    leases: Sequence[float] = (2.0,)
    waits: Sequence[float] = (0.0, 1.0, 10.0)
    replicas: int | None = None
    timeout: float = 5.0
    work: float = 0.02
    renewed: float = 0.5
    long: float = 0.0
    late: float = 0.0
    cancelled: float = 0.0
    killed: float = 0.0
    sign: str = "go"


def left_until(end: float, folder: Path) -> float:
    """Return the seconds that are left of the storm of that folder."""
    return 0.0 if folder.joinpath(OVER).exists() else end - time.monotonic()


class Foreign:
    """What a lock of another program gives: it is believed in for its lease."""

    fence, lost = 0, False

    def __init__(self, lease: float, leave: Callable[[], object]) -> None:
        self._end = time.monotonic() + lease
        self.release = leave

    def remaining(self) -> float:
        return self._end - time.monotonic()


class Caller:
    """Takes turns at locks until its time is over."""

    def __init__(self, plan: Plan, folder: Path, seed: int, note: Callable[..., None]) -> None:
        self.plan = plan
        self.folder = folder
        self.note = note
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self.end = time.monotonic() + plan.seconds
        limits: Any = {"socket_timeout": plan.timeout, "socket_connect_timeout": plan.timeout}
        client: Any = redis.RedisCluster if plan.where == "cluster" else redis.Redis
        urls = plan.urls if plan.where == "masters" else plan.urls[:1]
        self.clients = [client.from_url(url, **limits) for url in urls]

    def has(self, chance: float) -> bool:
        return self.random.random() < chance

    async def sleep(self, seconds: float) -> None:
        if self.plan.in_tasks:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs it

    async def take(self, kind: str, keys: Sequence[str], lease: float, wait: float) -> Any:
        """Return what is held. Raises LockError."""
        if kind not in OURS and kind not in ("several", "django"):
            return self.take_foreign(kind, keys[0], lease, wait)
        options: dict[str, Any] = {"renew": self.has(self.plan.renewed), **OURS.get(kind, {})}
        names = [f"lock:{key}{SUFFIX if 'timestamp' in kind else ''}" for key in keys]
        one: Any
        if kind == "django":
            one = lock(keys[0], timeout=lease, replicas=self.plan.replicas, **options)
        elif kind == "several":
            one = MultiLock(self.clients[0], names, lease, **options)
        elif self.plan.where == "masters":
            one = Redlock(self.clients, names[0], lease, **options)
        else:
            one = RedisLock(self.clients[0], names[0], lease, **options)
        return await one.atake(wait) if self.plan.in_tasks else one.take(wait)

    def take_foreign(self, kind: str, key: str, lease: float, wait: float) -> Foreign:
        if kind == "nothing":
            return Foreign(lease, lambda: None)
        one: Any
        if kind == "redis-py":
            one = self.clients[0].lock(f"lock:{key}", timeout=lease, sleep=0.005)
            is_taken = one.acquire(blocking_timeout=wait)
        else:
            # Its lease is its own.
            lease, one = 9.0, LEGACY[kind.partition("-")[2]](self.clients[0], f"lock:{key}")
            is_taken = one.acquire()
        if not is_taken:
            raise LockBusy(key)
        return Foreign(lease, one.release)

    async def turn(self) -> None:
        """Take a lock, stay while it is believed in, and note the stay."""
        kind = self.random.choice(self.plan.kinds)
        many = self.random.choice((2, 2, 3, 4)) if kind == "several" else 1
        keys = self.random.sample(self.plan.keys, many)
        lease = self.random.choice(self.plan.leases)
        asked = time.monotonic()
        try:
            held = await self.take(kind, keys, lease, self.random.choice(self.plan.waits))
        except LockError as error:
            self.note("refused", type(error).__name__, time.monotonic() - asked)
            await self.sleep(0.02)
            return
        began = left = time.monotonic()
        try:
            if self.has(self.plan.killed):
                os.kill(os.getpid(), signal.SIGKILL)
            end = began + self.seconds_to_stay(lease)
            while (now := time.monotonic()) < end and held.remaining() > 0:
                left = now
                await self.sleep(0.001)
        finally:
            # Several masters have none, and several keys one each.
            fence = 0 if many > 1 or self.plan.where == "masters" else held.fence
            for key in keys if left > began else ():
                self.note("stay", kind, key, asked, began, left, fence)
            try:
                await self.release(held)
            except LockError as error:
                self.note("lost", type(error).__name__)

    def seconds_to_stay(self, lease: float) -> float:
        with contextlib.suppress(FileNotFoundError):
            seconds = float(self.folder.joinpath("stay").read_text())
            # One of them finds it.
            self.folder.joinpath("stay").unlink()
            self.folder.joinpath("staying").touch()
            return seconds
        if self.has(self.plan.late):
            return 2 * lease
        return 0.7 * lease if self.has(self.plan.long) else self.random.uniform(0, self.plan.work)

    async def release(self, held: Any) -> None:
        if self.plan.in_tasks:
            await held.arelease()
        else:
            held.release()

    def goes_on(self) -> bool:
        return left_until(self.end, self.folder) > 0

    def in_thread(self) -> None:
        while self.goes_on():
            # Nothing that it awaits suspends.
            with contextlib.suppress(StopIteration):
                self.turn().send(None)

    async def in_task(self) -> None:
        while self.goes_on():
            turn = asyncio.create_task(self.turn())
            if self.has(self.plan.cancelled):
                await asyncio.wait({turn}, timeout=self.random.uniform(0, 0.2))
                turn.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await turn


def main() -> None:
    folder, seed, given = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    plan = Plan(**given)
    if "django" in plan.kinds:
        import django

        django.setup()
    writing = threading.Lock()
    with folder.joinpath(f"notes-{seed}").open("a", buffering=1) as notes:

        def note(*what: Any) -> None:
            with writing:
                notes.write(json.dumps(what) + "\n")

        folder.joinpath(f"ready-{seed}").touch()
        while not folder.joinpath(plan.sign).exists():
            time.sleep(0.01)
        callers = [Caller(plan, folder, 1000 * seed + at, note) for at in range(plan.callers)]
        if plan.in_tasks:
            asyncio.run(together(callers))
            return
        with ThreadPoolExecutor(plan.callers) as pool:
            for work in [pool.submit(one.in_thread) for one in callers]:
                work.result()


async def together(callers: list[Caller]) -> None:
    await asyncio.gather(*[one.in_task() for one in callers])


class Stay(NamedTuple):
    """From the grant until the holder last believed in it, in seconds on the machine's clock."""

    kind: str
    key: str
    asked: float
    began: float
    ended: float
    fence: int


class Double(NamedTuple):
    """A grant ``at`` which others still believed in theirs, for so many ``seconds``."""

    at: float
    seconds: float


class History:
    """What the callers of a storm noted; ``result``: what the trouble returned."""

    def __init__(self, notes: list[list[Any]], result: Any = None) -> None:
        stays = [Stay(*what) for sort, *what in notes if sort == "stay"]
        self.stays = sorted(stays, key=lambda stay: stay.began)
        self.refused = [tuple(what) for sort, *what in notes if sort == "refused"]
        self.lost = [what for sort, *what in notes if sort == "lost"]
        self.result = result

    @property
    def doubles(self) -> list[Double]:
        """Return each grant to one who may not be in with those who were."""
        found, inside = [], dict[str, list[Stay]]()
        for stay in self.stays:
            others = [one for one in inside.get(stay.key, ()) if one.ended > stay.began]
            is_mixed = any(one.kind != stay.kind for one in others)
            if is_mixed or len(others) >= TOGETHER.get(stay.kind, 1):
                end = max(one.ended for one in others)
                found.append(Double(stay.began, end - stay.began))
            inside[stay.key] = [*others, stay]
        return found

    @property
    def fences_back(self) -> int:
        """Return how many fences are below that of one who had left when their holder asked."""
        fenced = [stay for stay in self.stays if stay.fence]
        moments = [(stay.ended, 0, stay.key, stay.fence) for stay in fenced]
        moments += [(stay.asked, 1, stay.key, stay.fence) for stay in fenced]
        last: dict[str, int] = {}
        found = 0
        for _, is_asking, key, fence in sorted(moments):
            if is_asking:
                found += fence < last.get(key, 0)
            else:
                last[key] = max(last.get(key, 0), fence)
        return found

    @property
    def longest_wait(self) -> float:
        return max((stay.began - stay.asked for stay in self.stays), default=0.0)

    def stall(self, since: float = 0.0) -> float:
        """Return the longest time in which nobody had a lock, that ended after ``since``."""
        ends = accumulate((stay.ended for stay in self.stays), max)
        pauses = zip(self.stays[1:], ends, strict=False)
        return max((stay.began - end for stay, end in pauses if stay.began > since), default=0.0)

    def after(self, moment: float) -> list[Stay]:
        return [stay for stay in self.stays if stay.began > moment]

    def tell(self, about: str) -> None:
        doubles = self.doubles
        most = f" of {max(double.seconds for double in doubles):.2f} s at most" if doubles else ""
        figure(
            f"{about}: {len(self.stays)} grants, {len(doubles)} double grants{most}, "
            f"{self.fences_back} fences that went back, {len(self.refused)} refused, "
            f"longest wait {self.longest_wait:.2f} s, longest stall {self.stall():.2f} s"
        )


class Crew:
    """The processes of a storm; one that was killed is followed by another until time is over."""

    def __init__(self, folder: Path, plans: list[Plan], environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.plans = plans
        self.environ = {**os.environ, **environ}
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for seed in range(len(plans)):
            self.start(seed, plans[seed])
        # To start them takes longer than some of the storms on a machine that is busy.
        eventually(lambda: len(list(folder.glob("ready-*"))) == len(plans), 60)
        self.end = time.monotonic() + plans[0].seconds
        self.begin("go")

    def begin(self, sign: str) -> None:
        self.folder.joinpath(sign).touch()

    def start(self, seed: int, plan: Plan) -> None:
        words = [str(self.folder), str(seed), json.dumps(plan._asdict())]
        command = [sys.executable, "-m", "tests.support.storms", *words]
        self.running[seed] = subprocess.Popen(command, cwd=ROOT, env=self.environ)

    def have_one_stay(self, seconds: float) -> None:
        """Return when one has a lock that it is to keep for so long."""
        new = self.folder / "stay-new"
        new.write_text(str(seconds))
        new.rename(self.folder / "stay")
        eventually(self.folder.joinpath("staying").exists)

    def stop_one(self, seconds: float) -> None:
        """Have one of them stand still for so long."""
        process = random.choice([*self.running.values()])  # noqa: S311 - no secret
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def follow(self) -> None:
        """Return when time is over, and with it the processes."""
        while (left := left_until(self.end, self.folder)) > 0.5:
            for seed, process in list(self.running.items()):
                if process.poll() == -signal.SIGKILL:
                    del self.running[seed]
                    plan = self.plans[seed % len(self.plans)]._replace(seconds=left)
                    self.start(seed + len(self.plans), plan)
            time.sleep(0.05)
        ends = [process.wait(90) for process in self.running.values()]
        # A raw error of redis-py would have ended one.
        assert set(ends) <= {0, -signal.SIGKILL}

    def notes(self) -> Iterator[list[Any]]:
        for file in self.folder.glob("notes-*"):
            yield from map(json.loads, file.read_text().splitlines())


def storm(
    folder: Path,
    plans: list[Plan],
    trouble: Callable[[Crew], object] = lambda crew: None,
    environ: Mapping[str, str] = {},
) -> History:
    """Have a process of each plan contend, and make the trouble meanwhile."""
    crew = Crew(folder, plans, environ)
    try:
        with ThreadPoolExecutor(1) as pool:
            troubled = pool.submit(trouble, crew)
            crew.follow()
            return History(list(crew.notes()), troubled.result())
    finally:
        for process in crew.running.values():
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
