"""A server that runs the scripts themselves, and all that it can come to keep for one lock.

What it keeps is told apart by numbers: equal ones, so that what a script does with one is found
out once. All times are relative to now. Fences and ranks count by their order only, and are the
smallest numbers that have it. The name, mailboxes, shares and waiters end in time; what else is
kept beside them outlives whatever a search comes to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

from lupa import lua51  # type: ignore[import-untyped]

from tests.support.seams import commands, lock_keys

from .shared_redis import NOW_MS, NOW_US, Content, Keyspace

KEYS = lock_keys("n")
NAME, WAITERS, ALIVE = KEYS.name, KEYS.waiters, KEYS.alive
META, SHARES, HOLDERS = KEYS.meta, KEYS.shares, KEYS.holders
WAKE, GONE = KEYS.wake(""), KEYS.tombstone("")
# Precedes the token of a waiter, in the field of its record.
WHO = "who:"
BATON = "baton:"
FOREIGN = "foreign"
# Known to no script: the fence of each who holds it, and the last that was given.
FENCES = "fences"
LAST = "last"
PAST = NOW_MS - 1
_LONG = 10**6
_FIRST = NOW_US - 800
_STAMP = re.compile(r"\d{16}")

Keys = dict[str, tuple[Content, int | None]]
Frozen = tuple[tuple[str, Any, int | None], ...]


class Answer(NamedTuple):
    """A reply, the server after it, and what was wrong with it."""

    reply: tuple[Any, ...]
    server: int
    wrong: str


class Server:
    """What can be read off what the server keeps."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def table(self, key: str) -> dict[str, Any]:
        found = self.keys.get(key)
        return found[0] if found and isinstance(found[0], dict) else {}

    def text(self, key: str) -> str:
        found = self.keys.get(key)
        return found[0] if found and isinstance(found[0], str) else ""

    @cached_property
    def value(self) -> str:
        return self.text(NAME)

    @cached_property
    def is_group(self) -> bool:
        return self.value.startswith(("readers:", "permits:"))

    @cached_property
    def holders(self) -> tuple[str, ...]:
        """The tokens of those who hold it."""
        if self.is_group:
            shares = self.table(SHARES).items()
            return tuple(
                token for token, end in shares if end > NOW_MS and not token.startswith(BATON)
            )
        if not self.value or self.value.startswith((BATON, "kept:")) or self.value == FOREIGN:
            return ()
        return (self.value,)

    @cached_property
    def left_to(self) -> tuple[str, ...]:
        """The tokens of those whom it, or a share of it, was left to."""
        if self.is_group:
            shares = self.table(SHARES).items()
            return tuple(
                token.removeprefix(BATON)
                for token, end in shares
                if end > NOW_MS and token.startswith(BATON)
            )
        return (self.value.removeprefix(BATON),) if self.value.startswith(BATON) else ()

    @cached_property
    def queue(self) -> tuple[str, ...]:
        waiters = self.table(WAITERS)
        return tuple(sorted(waiters, key=waiters.__getitem__))

    @cached_property
    def mail(self) -> frozenset[str]:
        return frozenset(key.removeprefix(WAKE) for key in self.keys if key.startswith(WAKE))

    def is_lapsed(self, token: str) -> bool:
        """Whether the waiter of that token is known to be gone."""
        return int(str(self.table(ALIVE).get(token, "0")).split()[0]) < NOW_MS

    @cached_property
    def wrong(self) -> str:
        """What must never be kept."""
        for key, (_, life) in self.keys.items():
            if life is None and key not in (FENCES, LAST) and self.text(key) != FOREIGN:
                return f"left behind: {key} never expires"
        owner = self.text(META).split(" ", 3)[2:3]
        if self.holders and owner != [self.value]:
            return "nameless: meta does not know what stands at the name"
        known = self.table(ALIVE)
        waiting = {name for name in known if not name.startswith(WHO)}
        if any(known.get(WHO + token) != f"of {token}" for token in waiting):
            return "nameless: the record of one who waits is missing"
        if len(known) != 2 * len(waiting):
            return "left behind: the record of one who does not wait"
        if self.is_group:
            records = self.table(HOLDERS)
            for token in self.holders:
                if not str(records.get(token, "")).endswith(f" of {token}"):
                    return "nameless: the record of one who holds it is missing"
        return ""

    @cached_property
    def deadlines(self) -> tuple[int, ...]:
        """After how many ms something will have changed by itself."""
        lives = [life for key, (_, life) in self.keys.items() if key == NAME and life is not None]
        lives += [end - NOW_MS for end in self.table(SHARES).values()]
        alive = self.table(ALIVE)
        # Who is alive until a moment is so in that moment, too.
        untils = [int(alive[token].split()[0]) for token in self.queue if token in alive]
        lives += [until + 1 - NOW_MS for until in untils]
        return tuple(life for life in lives if life > 0)

    def __str__(self) -> str:
        shown = [f"N={self.value or '-'}", f"queue={','.join(self.queue) or '-'}"]
        life = self.keys.get(NAME, (None, None))[1]
        shown[0] += f" ({life} ms)" if life is not None else ""
        if self.is_group:
            ends = self.table(SHARES).items()
            shown.append(f"shares={','.join(f'{token} {end - NOW_MS}' for token, end in ends)}")
        shown += [f"mail={','.join(sorted(self.mail))}"] * bool(self.mail)
        gone = [key.removeprefix(GONE) for key in self.keys if key.startswith(GONE)]
        return " | ".join(shown + [f"gone={','.join(gone)}"] * bool(gone))


class Servers:
    """All that the server came to keep, by number; 0 is nothing."""

    def __init__(self, changed: Callable[[str], str] = str) -> None:
        self._lua = lua51.LuaRuntime(encoding="utf-8", unpack_returned_tuples=True)
        self._redis = self._lua.eval("function(call) return {call = call, pcall = call} end")(
            self._call
        )
        self._changed = changed
        self._scripts: dict[str, Any] = {}
        self._numbers: dict[Frozen, int] = {(): 0}
        self._kept: list[Frozen] = [()]
        self._read: dict[int, Server] = {}
        self._ran: dict[tuple[int, commands.Request, bool], Answer] = {}
        self._passed: dict[tuple[int, int], int] = {}
        self._forgot: dict[tuple[int, frozenset[str], frozenset[str]], int] = {}
        self._keyspace = Keyspace({})

    def read(self, number: int) -> Server:
        found = self._read.get(number)
        if found is None:
            found = self._read[number] = Server(self._thawed(number))
        return found

    def run(self, number: int, request: commands.Request, *, is_behind: bool = False) -> Answer:
        """``is_behind``: whether the server's clock was stepped back, behind the last fence."""
        asked = (number, request, is_behind)
        found = self._ran.get(asked)
        if found is None:
            found = self._ran[asked] = self._run(number, request, is_behind=is_behind)
        return found

    def pass_time(self, number: int, ms: int) -> int:
        asked = (number, ms)
        found = self._passed.get(asked)
        if found is None:
            found = self._passed[asked] = self._number(_later(self._thawed(number), ms))
        return found

    def take_mail(self, number: int, token: str) -> int:
        keys = self._thawed(number)
        del keys[WAKE + token]
        return self._number(keys)

    def put(self, number: int, value: str, life: int | None) -> int:
        """Have ``value`` stand at the name; nothing if it is empty."""
        keys = self._thawed(number)
        keys.pop(NAME, None)
        if value:
            keys[NAME] = (value, life)
        return self._number(keys)

    def forget(self, number: int, known: frozenset[str], asking: frozenset[str]) -> int:
        """Without what is kept of tokens not ``known``, or not ``asking``, to anybody."""
        asked = (number, known, asking)
        found = self._forgot.get(asked)
        if found is None:
            found = self._forgot[asked] = self._forget(number, known, asking)
        return found

    def _forget(self, number: int, known: frozenset[str], asking: frozenset[str]) -> int:
        server = self.read(number)
        seen = {*known, *server.queue, *server.left_to}
        keys = self._thawed(number)
        for key in list(keys):
            if key.startswith((GONE, WAKE)) and key.split(":", 2)[2] not in seen:
                del keys[key]
        known_of = server.table(ALIVE).items()
        alive = {name: one for name, one in known_of if name.removeprefix(WHO) in seen}
        _put(keys, ALIVE, alive)
        _put(
            keys, FENCES, {t: one for t, one in server.table(FENCES).items() if t in server.holders}
        )
        if LAST in keys:
            fence, _, token = server.text(LAST).partition(" ")
            keys[LAST] = (f"{fence} {token if token in asking else ''}", None)
        if not server.is_group:
            # Of a group that ran out; whoever founds another removes them.
            keys.pop(HOLDERS, None)
            shares = server.table(SHARES).items()
            _put(keys, SHARES, {token: end for token, end in shares if token in known})
        owner = server.text(META).split(" ", 3)[2:3]
        if owner and owner[0] not in seen:
            # Whether it has let go makes no difference.
            meta, life = keys[META]
            keys[META] = (f"{str(meta).rstrip()} ", life)
        return self._number(keys)

    def _run(self, number: int, request: commands.Request, *, is_behind: bool) -> Answer:
        before, keys = self.read(number), self._thawed(number)
        fences, last = before.table(FENCES), before.text(LAST)
        keys = {key: one for key, one in keys.items() if key not in (FENCES, LAST)}
        self._keyspace = Keyspace(keys, _FIRST - 50 if is_behind else NOW_US)
        parts = map(self._lua.table_from, (request.keys, request.args))
        try:
            reply = self._script(request)(self._redis, *parts)
        except lua51.LuaError as error:
            return Answer(("ERROR",), number, f"error: {error}")
        answer = _as_reply(reply)
        wrong = ""
        if request.script.name.endswith("acquire") and answer[0] == "OK":
            token, fence = str(request.args[0]), str(answer[1])
            had = fences.get(token) if token in before.holders else None
            is_next = fence > last[:16] or f"{fence} {token}" == last
            if fence != had if had is not None else not is_next:
                wrong = "fence: not above the last one, or another for the same lock"
            fences = {**fences, token: fence}
            last = max(last, f"{fence} {token}")
        if fences:
            keys[FENCES] = (fences, None)
        if last:
            keys[LAST] = (last, None)
        return Answer(answer, self._number(keys), wrong)

    def _script(self, request: commands.Request) -> Any:
        source = request.script.source
        found = self._scripts.get(source)
        if found is None:
            body = self._changed(source)
            found = self._lua.eval(f"function(redis, KEYS, ARGV) {body}\nend")
            self._scripts[source] = found
        return found

    def _call(self, name: str, *args: Any) -> Any:
        reply = self._keyspace.call(name, *args)
        return self._lua.table_from(reply) if isinstance(reply, (list, dict)) else reply

    def _thawed(self, number: int) -> Keys:
        return {
            key: (dict(content) if isinstance(content, tuple) else content, life)
            for key, content, life in self._kept[number]
        }

    def _number(self, keys: Keys) -> int:
        frozen = _frozen(keys)
        found = self._numbers.get(frozen)
        if found is None:
            found = self._numbers[frozen] = len(self._kept)
            self._kept.append(frozen)
        return found


def _as_reply(table: Any) -> tuple[Any, ...]:
    """As Redis sends a table: up to the first nil, and false as none."""
    values: list[Any] = []
    while (value := table[len(values) + 1]) is not None:
        values.append(None if value is False else value)
    return tuple(values)


def _put(keys: Keys, key: str, values: dict[str, Any]) -> None:
    if values:
        keys[key] = (values, keys[key][1])
    else:
        keys.pop(key, None)


def _frozen(keys: Keys) -> Frozen:
    ranks = _smallest(_stamps(keys, (WAITERS, ALIVE)))
    fences = _smallest(_stamps(keys, (NAME, META, HOLDERS, FENCES, LAST)))
    frozen = []
    for key in sorted(keys):
        content, life = keys[key]
        stamps = ranks if key in (WAITERS, ALIVE) else fences
        if isinstance(content, dict):
            items = ((name, _small(value, stamps)) for name, value in sorted(content.items()))
            content = tuple(items)  # type: ignore[assignment]  # frozen
        elif isinstance(content, str):
            content = _small(content, stamps)
        if life is not None and key != NAME:
            life = _LONG
        frozen.append((key, content, life))
    return tuple(frozen)


def _stamps(keys: Keys, among: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for key in among:
        content = keys[key][0] if key in keys else ""
        values = content.values() if isinstance(content, dict) else (content,)
        for value in values:
            found.update(_STAMP.findall(str(value)))
    return found


def _smallest(stamps: set[str]) -> dict[str, str]:
    return {stamp: str(_FIRST + number) for number, stamp in enumerate(sorted(stamps))}


def _small(value: Any, stamps: dict[str, str]) -> Any:
    if isinstance(value, int):
        return int(stamps.get(str(value), value))
    return _STAMP.sub(lambda found: stamps[found[0]], value)


def _later(keys: Keys, ms: int) -> Keys:
    """What is left of ``keys`` so many ms later."""
    life = keys[NAME][1] if NAME in keys else None
    if life is not None:
        keys[NAME] = (keys[NAME][0], life - ms)
        if life <= ms:
            del keys[NAME]
    if SHARES in keys:
        shares, life = keys[SHARES]
        assert isinstance(shares, dict)
        keys[SHARES] = ({name: max(end - ms, PAST) for name, end in shares.items()}, life)
    if ALIVE in keys:
        alive, life = keys[ALIVE]
        assert isinstance(alive, dict)
        aged = {
            name: one if name.startswith(WHO) else _aged(one, ms) for name, one in alive.items()
        }
        keys[ALIVE] = (aged, life)
    return keys


def _aged(waiter: str, ms: int) -> str:
    alive, rank, again = waiter.split()
    return f"{max(int(alive) - ms, PAST)} {rank} {max(int(again) - ms, PAST)}"
