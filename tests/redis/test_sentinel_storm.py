"""Processes that contend for one lock while Sentinels fail over.

Its primary is killed; or another one is named while it goes on, as in maintenance; or it stands
still for a while, as a virtual machine does that is moved, and goes on when another one is named.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.processes import eventually
from tests.redis.sentinels import Watched, watched
from tests.servers import any_binary
from tests.support.storms import OVER, Crew, History, Plan, storm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LEASE, STAY = 6.0, 8.0
# For how long the primary stands still, and how long two may go on at once after the move.
FROZEN, AFTER = 3.0, 1.5

# Twenty processes keep the processors busy, and what they see is timed.
pytestmark = [pytest.mark.storm, pytest.mark.alone, pytest.mark.timeout(180)]


def contend(
    folder: Path,
    deployment: Watched,
    trouble: Callable[[Crew], float],
    *,
    replicas: int,
    count: int,
    late: int = 0,
) -> History:
    """Have so many processes contend, of which some come ``late``, when the trouble says so."""
    # Locks are renewed; without replicas they are not, so that nobody is told of a loss before
    # others have it.
    plan = Plan(
        [deployment.primary.url],
        ["django"],
        seconds=60.0,
        leases=[LEASE],
        replicas=replicas,
        renewed=float(bool(replicas)),
    )
    plans = [plan._replace(sign="late" if at < late else "go") for at in range(count)]

    def work(crew: Crew) -> float:
        client = deployment.primary.client(db=1)
        eventually(lambda: client.exists("lock:a"), 30)
        time.sleep(3)
        result = trouble(crew)
        # By then all know who is primary, and have had the lock there.
        time.sleep(4)
        eventually(lambda: len(History([*crew.notes()]).after(result)) > 30, 40)
        crew.begin(OVER)
        return result

    return storm(folder, plans, work, deployment.variables)


def tell(found: History, about: str) -> None:
    """Print what was found; the trouble ended, or the primary was killed, at its result."""
    since = found.result
    after = found.after(since)
    pause = after[0].began - since if after else float("inf")
    found.tell(
        f"{about}: {len(after)} grants after it, the next {pause:.1f} s later, "
        f"longest stall then {found.stall(since):.1f} s"
    )


# The primary is killed


def killed(folder: Path, replicas: int, *, is_cut: bool) -> History:
    """Kill the primary while one of the processes stays, if one is let.

    ``is_cut``: whether the replica hears of nothing for a time before.
    """
    with watched(any_binary()) as deployment:

        def strike(crew: Crew) -> float:
            if is_cut:
                # Until whatever the replica knows of is over there. For ten seconds it can be
                # promoted.
                deployment.cut_off()
                time.sleep(LEASE + 0.5)
            if not is_cut or not replicas:
                crew.have_one_stay(STAY)
            moment = time.monotonic()
            deployment.primary.kill()
            (new,) = deployment.replicas
            eventually(deployment.names_another, 40)
            # Another one to acknowledge locks, which is empty and must not come back as a primary.
            deployment.primary.options = ("--replicaof", "127.0.0.1", str(new.port))
            deployment.primary.start()
            return moment

        found = contend(folder, deployment, strike, replicas=replicas, count=8)
    tell(found, f"primary killed, replicas={replicas}, {'cut before' if is_cut else 'not cut'}")
    return found


@pytest.mark.parametrize("is_cut", [False, True], ids=["", "replica hears nothing"])
def test_with_replicas_there_is_one_holder_at_a_time(tmp_path: Path, is_cut: bool) -> None:
    found = killed(tmp_path, 1, is_cut=is_cut)

    assert found.doubles == []


def test_without_replicas_a_grant_that_no_replica_heard_of_makes_two(tmp_path: Path) -> None:
    assert killed(tmp_path, 0, is_cut=True).doubles


# Another one is named, and the primary goes on


def moved(folder: Path, how: str, replicas: int, *, is_strict: bool) -> History:
    """Have another primary named while the old one is awake, or stands still for a while.

    ``is_strict``: whether primaries refuse writes that no replica hears of.
    """
    with watched(any_binary(), replicas=2) as deployment:
        for server in (deployment.primary, *deployment.replicas):
            client = server.client()
            client.config_set("min-replicas-to-write", int(is_strict))
            client.config_set("min-replicas-max-lag", 1)

        def move(crew: Crew) -> float:
            if how == "planned":
                eventually(deployment.fails_over, 30)
                end = 0.0
            else:
                deployment.primary.pause()
                end = time.monotonic() + FROZEN
            eventually(deployment.names_another, 30)
            # Those who connect now have never heard of the old one.
            crew.begin("late")
            if how == "frozen":
                time.sleep(max(end - time.monotonic(), 0))
                deployment.primary.resume()
            return time.monotonic()

        found = contend(folder, deployment, move, replicas=replicas, count=20, late=10)
    tell(found, f"{how}, replicas={replicas}, min-replicas-to-write {int(is_strict)}")
    assert len(found.stays) > 100
    return found


MOVES = pytest.mark.parametrize("how", ["planned", "frozen"])


@MOVES
def test_without_replicas_two_have_it_for_a_second_after_another_primary_was_named(
    tmp_path: Path, how: str
) -> None:
    found = moved(tmp_path, how, 0, is_strict=False)

    assert all(double.at - found.result <= AFTER for double in found.doubles)


@MOVES
@pytest.mark.parametrize("replicas", [0, 2])
def test_where_a_primary_needs_a_replica_to_write_there_is_one_holder_at_a_time(
    tmp_path: Path, how: str, replicas: int
) -> None:
    assert moved(tmp_path, how, replicas, is_strict=True).doubles == []
