"""What this project's lock, with everything on, is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MEASURED = "full"
RIVAL = "python-redis-lock"


class Bar(NamedTuple):
    what: str
    bar: str
    seen: str
    met: bool


def judge(parts: dict[str, Any]) -> list[Bar]:
    """Return a verdict for each bar whose figures this run has."""
    judged = (
        ratio,
        handover,
        total,
        overtaken,
        round_trips,
        idle,
        takeover,
        many,
        pool,
        transaction,
        tasks,
        footprint,
        capacity,
    )
    return [bar for verdict in judged for bar in verdict(parts)]


def seen(parts: dict[str, Any], part: str, figure: str, peer: str = MEASURED) -> float | None:
    """Return a figure of a peer, None when this run does not have it."""
    value = parts.get(part, {}).get(peer, {}).get("figures", {}).get(figure)
    return None if value is None else float(value)


def at_most(value: float | None, limit: float, what: str, form: str, unit: str = "") -> list[Bar]:
    if value is None:
        return []
    return [Bar(what, f"<= {limit:g}{unit}", f"{value:{form}}{unit}", value <= limit)]


def ratio(parts: dict[str, Any]) -> Iterable[Bar]:
    what = "acquire and release, to redis-py's"
    yield from at_most(seen(parts, "solo", "new_ratio"), 0.82, what, ".2f")
    plain = seen(parts, "solo", "new_ratio", "plain")
    yield from at_most(plain, 0.75, f"{what}, through RedisLock", ".2f")


def handover(parts: dict[str, Any]) -> Iterable[Bar]:
    mine = seen(parts, "contended", "handover_p50_ms")
    rivals = seen(parts, "contended", "handover_p50_ms", RIVAL)
    yield from at_most(mine, 1.0, "hand-over p50", ".2f", " ms")
    if mine is not None and rivals is not None:
        what = f"hand-over p50, to 0.75 of {RIVAL}'s"
        yield Bar(what, f"<= {0.75 * rivals:.2f} ms", f"{mine:.2f} ms", mine <= 0.75 * rivals)


def total(parts: dict[str, Any]) -> Iterable[Bar]:
    mine = seen(parts, "contended", "total_over_ideal")
    yield from at_most(mine, 1.20, "total over ideal", ".2f")
    others = {
        peer: value
        for peer in parts.get("contended", {})
        if peer not in ("full", "plain", "nothing")
        and (value := seen(parts, "contended", "total_over_ideal", peer)) is not None
    }
    if mine is not None and others:
        best = min(others, key=lambda peer: others[peer])
        what = f"total over ideal, to the best other ({best})"
        yield Bar(what, f"<= {others[best]:.2f}", f"{mine:.2f}", mine <= others[best])


def overtaken(parts: dict[str, Any]) -> Iterable[Bar]:
    by_arrival = seen(parts, "contended", "most_overtaken_by_arrival")
    yield from at_most(by_arrival, 0, "most overtaken, by arrival at the server", ".0f")
    by_clients = seen(parts, "contended", "most_overtaken")
    yield from at_most(by_clients, 3, "most overtaken, as the clients see it", ".0f")


def round_trips(parts: dict[str, Any]) -> Iterable[Bar]:
    requests = seen(parts, "contended", "requests_per_turn")
    return at_most(requests, 5, "requests per contended acquisition", ".2f")


def idle(parts: dict[str, Any]) -> Iterable[Bar]:
    requests = seen(parts, "idle", "requests_per_s")
    return at_most(requests, 3, "requests of 50 idle waiters and the holder", ".1f", " /s")


def takeover(parts: dict[str, Any]) -> Iterable[Bar]:
    worst = seen(parts, "takeover", "worst_ms")
    return at_most(worst, 20, "next holder after kill -9, worst", ".0f", " ms")


def many(parts: dict[str, Any]) -> Iterable[Bar]:
    threads, requests = (seen(parts, "many", name) for name in ("threads", "requests_per_cycle"))
    if threads is not None and requests is None:
        yield Bar("1,000 renewed locks", "renewed", "nothing was renewed", False)
    elif threads is not None:
        # The main thread is not theirs.
        yield from at_most(threads - 1, 1, "threads for 1,000 renewed locks", ".0f")
        yield from at_most(requests, 2, "round trips a cycle for 1,000 locks", ".1f")


def pool(parts: dict[str, Any]) -> Iterable[Bar]:
    for what in ("release", "renewal"):
        value = seen(parts, "pool", f"{what}_p99_ms")
        yield from at_most(value, 20, f"{what} p99, pool of 2, 50 waiting threads", ".1f", " ms")


def transaction(parts: dict[str, Any]) -> Iterable[Bar]:
    what = "6,000 locks in one transaction, to until_commit=False"
    return at_most(seen(parts, "transaction", "to_exit"), 1.3, what, ".2f")


def tasks(parts: dict[str, Any]) -> Iterable[Bar]:
    mine = seen(parts, "tasks", "handover_p50_ms")
    yield from at_most(mine, 0.5, "hand-over between tasks p50", ".2f", " ms")
    crowd = seen(parts, "tasks", "crowd")
    for kind, locks in (("one", "one lock"), ("each", "a lock each")):
        if crowd is None:
            continue
        what = f"{crowd:,.0f} tasks that wait for {locks}"
        soon = seen(parts, "tasks", f"{kind}_queued_s")
        if soon is None:
            yield Bar(what, "queued", "they failed", False)
        yield from at_most(soon, 1, f"{what}, queued in", ".2f", " s")
        connections = seen(parts, "tasks", f"{kind}_connections")
        yield from at_most(connections, 3, f"{what}, connections", ".0f")


def footprint(parts: dict[str, Any]) -> Iterable[Bar]:
    times = seen(parts, "footprint", "times") or 0
    for figure, limit, what, form, unit in (
        ("keys_after_cycles", 2, f"keys after {times:,.0f} cycles of one name", ".0f", ""),
        ("keys_of_busy", 1, f"keys more for {times:,.0f} busy answers", ".0f", ""),
        ("keys_per_name", 2, "keys a name", ".2f", ""),
        ("bytes_per_name", 400, "memory a name", ".0f", " bytes"),
    ):
        yield from at_most(seen(parts, "footprint", figure), limit, what, form, unit)


def capacity(parts: dict[str, Any]) -> Iterable[Bar]:
    cycle = seen(parts, "capacity", "server_us_100_names")
    yield from at_most(cycle, 45, "server CPU of an uncontended cycle", ".0f", " us")
    turn = seen(parts, "capacity", "server_us_10_waiters")
    if cycle is not None and turn is None:
        yield Bar("server CPU of a contended turn", "<= 300 us", "nobody had a turn", False)
    yield from at_most(turn, 300, "server CPU of a contended turn", ".0f", " us")
