"""Who waits for whom."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import Inspector, State
from django_setnx_lock.core.wait_graph import Link, WaitGraph, wait_graph
from tests.core.helpers import keys_of, listed, meta_of, write_meta
from tests.core.nesting import waiting

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockInfo


def drawn(graph: WaitGraph) -> list[str]:
    """Return each line as the key, indented, and how many wait behind it."""
    return [f"{'  ' * one.depth}{one.lock.key} {one.behind}" for one in graph.drawing()]


def looked(client: Any, *held: str, pairs: tuple[tuple[str, str], ...], **options: Any) -> Any:
    with waiting(client, held, *pairs, **options):
        return wait_graph(Inspector(client, "lock:"))


def test_without_locks_nobody_waits(inspector: Inspector) -> None:
    graph = wait_graph(inspector)

    assert drawn(graph) == []
    assert (graph.looked_at, graph.is_cut, graph.as_of) == (0, False, None)


def test_a_lock_that_nobody_waits_for_is_not_drawn(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a"):
        graph = wait_graph(inspector)

    assert drawn(graph) == []
    assert graph.looked_at == 1


def test_who_holds_nothing_is_told_at_the_lock_it_waits_for(redis_client: redis.Redis) -> None:
    graph = looked(redis_client, "a", pairs=(("", "a"), ("", "a")))

    assert drawn(graph) == ["a 2"]
    (link,) = graph.drawing()
    assert [one.holder and one.holder.label for one in link.lock.waiters] == ["for a", "for a"]


def test_three_in_a_chain_stand_under_what_blocks_them(redis_client: redis.Redis) -> None:
    graph = looked(redis_client, "a", pairs=(("b", "a"), ("c", "b"), ("", "c")))

    assert drawn(graph) == ["a 3", "  b 2", "    c 1"]
    _, b, c = graph.drawing()
    (holder_of_b,) = b.waiters
    assert holder_of_b.waits_for.key == "a"
    assert holder_of_b.by.holder is not None
    assert holder_of_b.by.holder.label == "for b"
    assert b.waited >= 0
    assert c.waiters[0].by.fingerprint == c.lock.fingerprint


def test_what_most_wait_behind_comes_first(redis_client: redis.Redis) -> None:
    pairs = (("", "a"), ("c", "b"), ("d", "b"), ("", "d"))
    graph = looked(redis_client, "a", "b", pairs=pairs)

    assert drawn(graph) == ["b 3", "  d 1", "  c 0", "a 1"]


def test_readers_that_wait_for_different_locks_stand_under_each(redis_client: redis.Redis) -> None:
    pairs = (("r", "a"), ("r", "b"), ("", "r"))
    graph = looked(redis_client, "a", "b", pairs=pairs[:2], shared=True)

    assert drawn(graph) == ["a 1", "  r 0", "b 1", "  r 0"]
    assert [one.is_repeated for one in graph.drawing()] == [False, False, False, True]
    assert [len(one.waiters) for one in graph.drawing()] == [0, 1, 0, 1]


def test_a_circle_is_drawn_once_and_said_to_be_one(redis_client: redis.Redis) -> None:
    graph = looked(redis_client, "a", pairs=(("b", "a"), ("c", "b")))
    locks = graph.locks
    (of_a,) = [one for one in graph.waits if one.holds.key == "b"]
    (of_b,) = [one for one in graph.waits if one.holds.key == "c"]
    circle = WaitGraph(
        locks={name: locks[name] for name in ("lock:a", "lock:b")},
        waits=[
            of_a,
            type(of_b)(holds=locks["lock:a"], by=locks["lock:a"], waits_for=of_b.waits_for),
        ],
        looked_at=2,
        is_cut=False,
        as_of=graph.as_of,
    )

    assert drawn(circle) == ["a 2", "  b 2", "    a 2"]
    assert [one.is_circle for one in circle.drawing()] == [False, False, True]


def test_a_long_chain_is_drawn(redis_client: redis.Redis) -> None:
    graph = looked(redis_client, "a", pairs=(("b", "a"),))
    (wait,) = graph.waits
    names = [f"lock:{number:04}" for number in range(1000)]
    locks: dict[str, LockInfo] = {name: _named(wait.holds, name) for name in names}
    waits = [
        type(wait)(holds=locks[after], by=locks[after], waits_for=_named(wait.waits_for, before))
        for before, after in pairwise(names)
    ]
    chain = WaitGraph(locks=locks, waits=waits, looked_at=1000, is_cut=False, as_of=0.0)

    depths = [one.depth for one in chain.drawing()]

    assert depths == list(range(1000))


def _named(one: Any, name: str) -> Any:
    return type(one)(**{field: getattr(one, field) for field in one.__slots__} | {"name": name})


def test_a_lock_outside_of_the_sample_that_is_waited_for_is_looked_at(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with waiting(redis_client, ("a", "z"), ("b", "a"), ("c", "b")):
        graph = wait_graph(inspector, search="c")

    assert keys_of(one.lock for one in graph.drawing()) == ["a", "b", "c"]


def test_where_there_are_more_locks_the_graph_is_said_to_be_cut(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a"), listed(redis_client, "b"), listed(redis_client, "c"):
        assert wait_graph(inspector, limit=2).is_cut
        assert not wait_graph(inspector, limit=3).is_cut


def test_a_holder_that_is_gone_is_marked_in_the_chain(
    redis_client: redis.Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_setnx_lock.core.inspection.GRACE", 0)
    with waiting(redis_client, ("a",), ("", "a")):
        record = '{"process":"killed","host":"h"}'
        write_meta(redis_client, meta_of(redis_client)._replace(record=record))
        (link,) = wait_graph(inspector).drawing()

    assert link.lock.state is State.GONE


def test_links_tell_no_token(redis_client: redis.Redis) -> None:
    with waiting(redis_client, ("a",), ("b", "a")):
        tokens = [redis_client.get("lock:a"), redis_client.get("lock:b")]
        graph = wait_graph(Inspector(redis_client, "lock:"))

    shown = repr(list[Link](graph.drawing()))
    assert not [token for token in tokens if token and str(token, "ascii") in shown]  # type: ignore[arg-type]
