"""A process that takes locks, is often stopped for longer than they last, and then writes.

Run as ``python -m tests.contrib.fencing.storming DATABASE SEED MODE PAUSES``, with a real server in
TEST_SERVER_URL. DATABASE is JSON, as in DATABASES; MODE is ``fenced``, or ``unfenced`` for the
control. It ends when all such processes have been stopped PAUSES times, and prints as JSON how
often its writes after a stop were made and refused. It stops itself; somebody has to let it go on.
It writes with the number of its lock: the handle would know by itself that its lease is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
from itertools import accumulate
from typing import Any

LEASE = 0.05  # seconds
ALIAS = "storm"
COUNTER = "pauses"

# Has the database itself note who wrote each seat, in the order in which it was written.
NOTES = """
CREATE TABLE written (id bigserial, seat bigint, writer bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO written (seat, writer) VALUES (NEW.id, NEW.taken_by::bigint);
    RETURN NEW;
END $$;
CREATE TRIGGER note BEFORE UPDATE ON fencing_seat FOR EACH ROW EXECUTE FUNCTION note();
"""


def late(writers: list[int]) -> int:
    """How many of the writes to a seat came after that of a later holder."""
    return sum(
        writer < newest for writer, newest in zip(writers, accumulate(writers, max), strict=True)
    )


def main() -> None:
    given, seed, mode, pauses = sys.argv[1:]
    import django

    django.setup()
    from tests import databases

    databases.add(ALIAS, json.loads(given))
    print(json.dumps(storm(random.Random(int(seed)), mode, int(pauses))))  # noqa: S311, T201 - to be repeatable, not secret; for who started it


def storm(chance: random.Random, mode: str, pauses: int) -> dict[str, int]:
    from django_setnx_lock import LockBusy, LockError, StaleFence, lock
    from tests.contrib.fencing.models import Seat

    client, seats = lock("any").client, Seat.objects.using(ALIAS)
    keys = list(seats.values_list("pk", flat=True))
    counts = {"made": 0, "refused": 0}
    while int(client.get(COUNTER) or 0) < pauses:
        pk = chance.choice(keys)
        try:
            held = lock(f"seat:{pk}", timeout=LEASE, renew=False).take(0.5)
        except LockBusy:
            continue
        seat: Any = seats.get(pk=pk)
        is_paused = chance.random() < 0.6
        if is_paused:
            client.incr(COUNTER)
            os.kill(os.getpid(), signal.SIGSTOP)
        seat.taken_by = str(held.fence)
        outcome = "made"
        try:
            if mode == "unfenced":
                seat.save()
            elif chance.random() < 0.5:
                seat.save(fence=held.fence)
            else:
                seats.filter(pk=pk).update(fence=held.fence, taken_by=seat.taken_by)
        except StaleFence:
            outcome = "refused"
        counts[outcome] += is_paused
        with contextlib.suppress(LockError):
            held.release()
    return counts


if __name__ == "__main__":
    main()
