"""Callers that wait for a lock, most of them while they hold another one."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import PREFIX, in_thread, listed
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import RedisLock

#: How often one that waits says for what, in seconds.
SAID_EVERY = 0.3


def told(client: Any, key: str, **options: Any) -> RedisLock:
    """Make a lock whose waiters say for what they wait, if they hold another one."""
    given = {"renew": True, "deadlock_timeout": SAID_EVERY, "label": f"for {key}", **options}
    return listed(client, key, **given)


@contextmanager
def waiting(
    client: Any,
    held: tuple[str, ...],
    *pairs: tuple[str, str],
    make: Callable[..., Any] = told,
    **options: Any,
) -> Iterator[None]:
    """Hold the locks ``held``, and have threads wait, in this order.

    A pair is what a thread holds ("" for nothing), and what it waits for. ``options`` are those of
    the locks that the threads hold. All have said what they wait for when this begins.
    """
    own = [in_thread(make(client, key).take) for key in held]
    has_all, may_wait = threading.Barrier(len(pairs) + 1), [threading.Event() for _ in pairs]

    def work(number: int, holds: str, waits_for: str) -> None:
        with ExitStack() as stack:
            if holds:
                stack.enter_context(make(client, holds, **options))
            has_all.wait(20)
            may_wait[number].wait(20)
            stack.enter_context(make(client, waits_for, blocking_timeout=30))

    threads = [
        threading.Thread(target=work, args=(number, *pair), daemon=True)
        for number, pair in enumerate(pairs)
    ]
    for thread in threads:
        thread.start()
    has_all.wait(20)
    try:
        count = 0
        for number, (holds, waits_for) in enumerate(pairs):
            queue = lock_keys(PREFIX + waits_for).waiters
            before = client.zcard(queue)
            may_wait[number].set()
            eventually(lambda queue=queue, before=before: client.zcard(queue) > before)  # type: ignore[misc]
            count += bool(holds)
            eventually(lambda count=count: len(client.keys("*:waits:*")) >= count)  # type: ignore[misc]
        yield
    finally:
        for one in own:
            one.release()
        for thread in threads:
            thread.join(40)
        assert not any(thread.is_alive() for thread in threads)
