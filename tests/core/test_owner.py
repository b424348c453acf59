"""Which owner a caller is, or works for."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

from django_setnx_lock.core.locks import owner
from tests.core.helpers import in_thread
from tests.processes import each_fork


def test_a_thread_is_one_owner() -> None:
    assert owner.current() is owner.current()


def test_another_thread_is_another() -> None:
    assert in_thread(owner.current) is not owner.current()


def test_a_thread_with_the_id_of_one_that_has_ended_is_another() -> None:
    flows: list[owner.Owner] = []
    ids: list[int] = []

    def note() -> None:
        flows.append(owner.current())
        ids.append(threading.get_ident())

    for _ in range(50):
        thread = threading.Thread(target=note)
        thread.start()
        thread.join()

    # The control: the id alone would have taken one for the other.
    assert len(set(ids)) < len(ids)
    assert len(set(map(id, flows))) == len(flows)


def test_a_flow_is_over_when_its_thread_has_ended() -> None:
    going, seen = threading.Event(), threading.Event()
    flows: list[owner.Owner] = []

    def work() -> None:
        flows.append(owner.current())
        seen.set()
        going.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert seen.wait(10)
    while_it_ran = flows[0].has_ended
    going.set()
    thread.join(10)

    assert (while_it_ran, flows[0].has_ended) == (False, True)


def test_a_task_is_a_flow_of_its_own() -> None:
    async def main() -> tuple[owner.Owner, owner.Owner, owner.Owner]:
        async def child() -> owner.Owner:
            return owner.current()

        mine = owner.current()
        return mine, await child(), await asyncio.create_task(child())

    mine, awaited, childs = asyncio.run(main())

    assert awaited is mine
    assert childs is not mine
    assert mine is not owner.current()
    assert mine.has_ended


def test_siblings_are_apart_where_a_context_variable_is_not() -> None:
    variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")

    async def main() -> tuple[set[int], set[int]]:
        variable.set(object())

        async def child() -> tuple[owner.Owner, object]:
            return owner.current(), variable.get()

        seen = await asyncio.gather(child(), child())
        return {id(one[0]) for one in seen}, {id(one[1]) for one in seen}

    flows, values = asyncio.run(main())

    assert (len(flows), len(values)) == (2, 1)


def test_a_callback_of_a_loop_belongs_to_nobody() -> None:
    async def main() -> tuple[owner.Owner, list[owner.Owner]]:
        seen: list[owner.Owner] = []
        done = asyncio.Event()

        def note() -> None:
            seen.extend((owner.current(), owner.current()))
            done.set()

        asyncio.get_running_loop().call_soon(note)
        await asyncio.wait_for(done.wait(), 10)
        return owner.current(), seen

    mine, (first, second) = asyncio.run(main())

    assert len({mine, first, second, owner.current()}) == 4


def test_a_task_that_is_gone_leaves_nothing_behind() -> None:
    async def main() -> tuple[ref[Any], ref[owner.Owner]]:
        return ref(asyncio.current_task()), ref(owner.current())

    task, found = asyncio.run(main())
    gc.collect()

    assert task() is None
    assert found() is None


@each_fork
def test_a_fork_is_a_flow_of_its_own(fork: Callable[[], int]) -> None:
    mine = owner.current()
    reader, writer = os.pipe()

    child = fork()
    if not child:
        os.write(writer, b"other" if owner.current() is not mine else b"same")
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 10) == b"other"
    os.close(reader)
    os.close(writer)


def test_what_was_thrown_away_is_swept_out() -> None:
    here = owner.Owner()
    here.holds = {str(number): [] for number in range(100)}

    here.sweep()

    assert not here.holds
