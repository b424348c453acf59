"""One lock's keys as one hashable value, and the shipped scripts run on it.

Times in a state are ticks from now (one is 1,000 ms), so that a state has no date and a search no
horizon. Ranks and fences are µs; of them only the tick and the order within it are kept. A script
runs against a fixed now, and what it leaves is taken down as ticks again.

A state of the server is a tuple; a value in it is a token, or (group, fence):

NAME     (value, ttl)
META     (fence, value, ttl)
WAITERS  (((token, rank), ...), ttl)
WAITING  (((token, alive, again, rank, box), ...), ttl)
SHARES   (((token, end), ...), ttl)
HOLDERS  (((token, fence), ...), ttl)
GONE     (((token, until), ...), ttl)
FORCED   ((token, ...), ttl)
INDEX    0 or 1
AWAKE    (box, ...)
BOXES    ((box, (token, ...), ttl), ...)
BLOCKED  ((box, timer, owner, live, behind), ...)

Of those who sleep at a box, in order, ``owner`` is a caller, or -1 - the number of a loop. Behind
the sleep, on the connection, are a request, of which the token is here, or so many more BRPOPs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lupa import lua51  # type: ignore[import-untyped]

import django_setnx_lock

from .keyspace import NOW, Keyspace

SCRIPTS = Path(django_setnx_lock.__file__).parent / "core/protocol/scripts"
# µs in a tick.
PER = 1_000_000
NOW_US = NOW * 1000
NAME, META, WAITERS, WAITING, SHARES, HOLDERS, GONE, FORCED = range(8)
INDEX, AWAKE, BOXES, BLOCKED = range(8, 12)
EMPTY: tuple[Any, ...] = (*(None,) * 8, 0, (), (), ())
_BESIDE = ("meta", "waiters", "waiting", "shares", "holders", "gone", "forced")
KEYS = ("k", *(f"{{k}}:{end}" for end in _BESIDE))
LETTERS = "ABCDEFGH"
# What another program does.
FOREIGN = {
    "fset": "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and {'OK'} "
    "or {'BUSY'}",
    "fdel": "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end "
    "return {'OK'}",
}

Server = tuple[Any, ...]
Edit = tuple[str, str, str]


class Violation(Exception):
    """What must hold and does not: 'property: how'."""


def script(name: str, edits: Iterable[Edit] = ()) -> str:
    """Return a shipped script with those edits, each of a file that is in it."""
    source, known = f"--- {name}\n", set[str]()
    while found := re.search(r"^--- (\w+)\n", source, re.MULTILINE):
        text = "" if found[1] in known else (SCRIPTS / f"{found[1]}.lua").read_text()
        for file, rule, instead in edits if text else ():
            if file == found[1]:
                assert text.count(rule) == 1, f"{file}.lua does not have {rule!r} once"
                text = text.replace(rule, instead)
        known.add(found[1])
        source = f"{source[: found.start()]}{text}{source[found.end() :]}"
    return source


class Redis:
    """Runs scripts on states. ``prefixes``: of the tokens of each caller.

    ``claim``, ``late``, ``memory``: what the constants of those names are, in ticks. ``floor``:
    ticks below which the past is not told apart. ``outlives``: for how long meta does the lease,
    where it is known that somebody asks within that; None: as long as the script says.
    """

    def __init__(
        self,
        prefixes: list[str],
        *,
        claim: int,
        late: int,
        memory: int,
        floor: int,
        outlives: int | None,
        edits: Iterable[Edit],
    ) -> None:
        self.floor, self._outlives = floor, outlives
        runtime = lua51.LuaRuntime()
        self._table = runtime.table_from
        self._keys = Keyspace(self._table)
        call = self._keys.call
        runtime.globals().redis = self._table({"call": call, "pcall": call})

        def compiled(source: str) -> Any:
            return runtime.execute(f"return function(KEYS, ARGV) {source}\nend")

        self._scripts = {name: compiled(source) for name, source in FOREIGN.items()}
        constants = {"CLAIM": claim, "LATE": late, "MEMORY": memory}
        for name in ("acquire", "release", "renew", "look", "force"):
            source = script(name, edits).replace("+ 60000", f"+ {memory * 1000}")
            for constant, value in constants.items():
                source = re.sub(
                    rf"local {constant} = \d+", f"local {constant} = {value}000", source
                )
            self._scripts[name] = compiled(source)
        self.names: dict[int, str] = {}
        self.tokens: dict[str, int] = {}
        for caller, prefix in enumerate(prefixes):
            for serial in range(16):
                name = f"{prefix}{LETTERS[caller]}{serial}"
                self.names[caller * 16 + serial], self.tokens[name] = name, caller * 16 + serial
        self._runs: dict[Any, Any] = {}
        self._shifts: dict[Any, Any] = {}

    # What a value is, as text and as a number.

    def _value_text(self, value: Any) -> str:
        return self.names[value] if type(value) is int else f"{value[0]}:{NOW_US + value[1]}"

    def _read_value(self, text: str) -> Any:
        if text in self.tokens:
            return self.tokens[text]
        group, fence = text.split(":")
        return group, int(fence) - NOW_US

    def _load(self, s: Server, top: int) -> None:
        keys, names = self._keys, self.names
        db: dict[str, Any] = {}
        keys.db, keys.ends = db, {}
        used = [top, s[META][0] if s[META] else -1]
        for at in (WAITERS, HOLDERS):
            used += [number for _, number in s[at][0]] if s[at] else []
        used += [row[3] for row in s[WAITING][0]] if s[WAITING] else []
        keys.micro = 1 + max([-1, *(number for number in used if 0 <= number < PER)])
        for at, key in enumerate(KEYS):
            if s[at] is not None:
                keys.ends[key] = NOW + s[at][-1] * 1000
        if s[NAME]:
            db["k"] = self._value_text(s[NAME][0])
        if s[META]:
            db["{k}:meta"] = f"{NOW_US + s[META][0]} {self._value_text(s[META][1])} R"
        if s[WAITERS]:
            db["{k}:waiters"] = {names[t]: NOW_US + rank for t, rank in s[WAITERS][0]}
        if s[WAITING]:
            db["{k}:waiting"] = {
                names[t]: f"{NOW + alive * 1000} {NOW + again * 1000} {NOW_US + rank} "
                f"{len(str(box)) + 4} box:{box} R"
                for t, alive, again, rank, box in s[WAITING][0]
            }
        for at in (SHARES, GONE):
            if s[at]:
                db[KEYS[at]] = {names[t]: NOW + end * 1000 for t, end in s[at][0]}
        if s[HOLDERS]:
            db["{k}:holders"] = {names[t]: f"{NOW_US + fence} R" for t, fence in s[HOLDERS][0]}
        if s[FORCED]:
            db["{k}:forced"] = {names[t]: "why" for t in s[FORCED][0]}
        if s[INDEX]:
            db["idx"] = {"k": NOW}
        for box in s[AWAKE]:
            db[f"box:{box}:awake"], keys.ends[f"box:{box}:awake"] = "1", NOW + 1000
        for box, mail, ttl in s[BOXES]:
            db[f"box:{box}"] = [names[t] for t in mail]
            keys.ends[f"box:{box}"] = NOW + ttl * 1000

    def _dump(self, blocked: tuple[Any, ...]) -> list[Any]:
        db, token = self._keys.db, self.tokens
        for key in db:
            if key not in self._keys.ends and key != "idx":
                raise Violation(f"expiry: a key has no end, {key}")
        ttl = {key: (end - NOW) // 1000 for key, end in self._keys.ends.items()}
        out: list[Any] = [None] * 12

        def tick(text: Any) -> int:
            return max((int(text) - NOW) // 1000, self.floor)

        def rows(at: int, read: Any) -> None:
            found = db.get(KEYS[at])
            if found:
                rows = tuple(sorted((token[t], *read(row)) for t, row in found.items()))
                out[at] = rows, ttl[KEYS[at]]

        def waiter(row: str) -> tuple[int, ...]:
            alive, again, rank, _, box, _ = row.split(" ")
            return tick(alive), tick(again), int(rank) - NOW_US, int(box[4:])

        if "k" in db:
            out[NAME] = self._read_value(db["k"]), ttl["k"]
        if "{k}:meta" in db:
            fence, value, _ = db["{k}:meta"].split(" ")
            out[META] = int(fence) - NOW_US, self._read_value(value), ttl["{k}:meta"]
        rows(WAITERS, lambda rank: (rank - NOW_US,))
        if out[WAITERS]:
            in_order = sorted(out[WAITERS][0], key=lambda row: (row[1], self.names[row[0]]))
            out[WAITERS] = tuple(in_order), out[WAITERS][1]
        rows(WAITING, waiter)
        rows(SHARES, lambda end: (tick(end),))
        rows(HOLDERS, lambda row: (int(row.split(" ")[0]) - NOW_US,))
        rows(GONE, lambda end: (tick(end),))
        out[GONE] = _without_past(out[GONE])
        if "{k}:forced" in db:
            out[FORCED] = tuple(sorted(token[t] for t in db["{k}:forced"])), ttl["{k}:forced"]
        out[INDEX] = int("idx" in db)
        awake = (key for key in db if key.endswith(":awake"))
        out[AWAKE] = tuple(sorted(int(key.split(":")[1]) for key in awake))
        out[BOXES] = tuple(
            sorted(
                (int(key[4:]), tuple(token[t] for t in mail), ttl[key])
                for key, mail in db.items()
                if key.startswith("box:") and type(mail) is list
            )
        )
        out[BLOCKED] = blocked
        return out

    def _canonical(self, s: list[Any], top: int) -> tuple[Server, int]:
        """Keep of ranks and fences the tick, not below the floor, and the order within it."""
        ranks = {rank for _, rank in s[WAITERS][0]} if s[WAITERS] else set()
        if s[WAITING]:
            ranks |= {row[3] for row in s[WAITING][0]}
        r = self._compressed(ranks)
        if s[WAITERS]:
            s[WAITERS] = tuple((t, r[rank]) for t, rank in s[WAITERS][0]), s[WAITERS][1]
        if s[WAITING]:
            rows = tuple((*row[:3], r[row[3]], row[4]) for row in s[WAITING][0])
            s[WAITING] = rows, s[WAITING][1]
        values = [s[META][1]] if s[META] else []
        values += [s[NAME][0]] if s[NAME] else []
        fences = {top, *(value[1] for value in values if type(value) is tuple)}
        fences |= {s[META][0]} if s[META] else set()
        fences |= {fence for _, fence in s[HOLDERS][0]} if s[HOLDERS] else set()
        f = self._compressed(fences)

        def swapped(value: Any) -> Any:
            return (value[0], f[value[1]]) if type(value) is tuple else value

        if s[META]:
            fence, value, ttl = s[META]
            if self._outlives is not None:
                ttl = min(ttl, (s[NAME][1] if s[NAME] else 0) + self._outlives)
            s[META] = f[fence], swapped(value), ttl
        if s[NAME]:
            s[NAME] = swapped(s[NAME][0]), s[NAME][1]
        if s[HOLDERS]:
            s[HOLDERS] = tuple((t, f[fence]) for t, fence in s[HOLDERS][0]), s[HOLDERS][1]
        return tuple(s), f[top]

    def _compressed(self, numbers: Iterable[int]) -> dict[int, int]:
        out, last, order = {}, None, 0
        for number in sorted(numbers):
            tick = max(number // PER, self.floor)
            order = order + 1 if tick == last else 0
            out[number], last = tick * PER + order, tick
        return out

    # Steps.

    def run(self, name: str, args: tuple[str, ...], s: Server, top: int) -> Any:
        """Return state, top, reply, and who was served at which box: (entry, token), ....

        ``top``: the highest fence that was ever given. Raises Violation.
        """
        key = name, args, s, top
        found = self._runs.get(key)
        if found is None:
            try:
                found = self._run(name, args, s, top)
            except Violation as violation:
                found = violation
            self._runs[key] = found
        if isinstance(found, Violation):
            raise found
        return found

    def _run(self, name: str, args: tuple[str, ...], s: Server, top: int) -> Any:
        self._load(s, top)
        keys = self._keys
        try:
            reply = self._scripts[name](self._table(["k", "{k}:meta", "idx"]), self._table(args))
        except lua51.LuaError as error:
            raise Violation(f"script: {error}") from None
        if lua51.lua_type(reply) == "table":
            reply = tuple(_items(reply))
        elif name in ("acquire", "release"):
            # The short reply of what is mostly asked.
            reply = ("OK", abs(reply), "listed", None)[: 2 if reply > 0 else 4]
            reply = reply if name == "acquire" else ("OK",)
        served, blocked = [], []
        for entry in s[BLOCKED]:
            box, behind = f"box:{entry[0]}", entry[4]
            mail = keys.db.get(box)
            if not mail:
                blocked.append(entry)
                continue
            served.append((entry, self.tokens[mail.pop()]))
            if not mail:
                keys.drop(box)
            if not entry[3] and entry[2] < 0 and behind:
                # Nobody is there to read it, and the next BRPOP of the connection has its turn.
                blocked.append((*entry[:4], behind - 1))
        old = s[META][0] if s[META] else None
        out = self._dump(tuple(blocked))
        if out[META] and out[META][0] != old:
            if out[META][0] <= top:
                raise Violation("fence: it is not above an earlier one")
            top = out[META][0]
        if reply and reply[0] == "OK" and name == "acquire":
            fence, token = int(reply[1]) - NOW_US, self.tokens[args[0]]
            is_group = type(out[NAME][0]) is tuple
            if fence != (dict(out[HOLDERS][0]).get(token) if is_group else out[META][0]):
                raise Violation("fence: the one that is answered is not the one at the server")
        state, top = self._canonical(out, top)
        return state, top, reply, tuple(served)

    @staticmethod
    def listen(s: Server, box: int) -> Server:
        """Return the state after listen.lua."""
        if any(key == box for key, *_ in s[BOXES]):
            return s
        return (*s[:AWAKE], tuple(awake for awake in s[AWAKE] if awake != box), *s[BOXES:])

    @staticmethod
    def pop(s: Server, box: int) -> tuple[Server, int] | None:
        """Return the state after a BRPOP that finds mail, and the mail; else None."""
        for at, (key, mail, ttl) in enumerate(s[BOXES]):
            if key == box:
                rest = ((key, mail[:-1], ttl),) if len(mail) > 1 else ()
                boxes = s[BOXES][:at] + rest + s[BOXES][at + 1 :]
                return (*s[:BOXES], boxes, *s[BLOCKED:]), mail[-1]
        return None

    def shift(self, s: Server, top: int, by: int) -> Any:
        """Move what has a date by so many ticks: -1 as time passes, more than 0 for a step back.

        Return state, top, and the sleeps that end by it.
        """
        key = s, top, by
        found = self._shifts.get(key)
        if found is not None:
            return found
        out, us, floor = list(s), by * PER, self.floor
        for at in range(FORCED + 1):
            if out[at] is not None:
                ttl = out[at][-1] + by
                out[at] = (*out[at][:-1], ttl) if ttl > 0 else None

        def value(old: Any) -> Any:
            return (old[0], old[1] + us) if type(old) is tuple else old

        if out[META]:
            out[META] = out[META][0] + us, value(out[META][1]), out[META][2]
        if out[NAME]:
            out[NAME] = value(out[NAME][0]), out[NAME][1]
        for at in (WAITERS, HOLDERS):
            if out[at]:
                out[at] = tuple((t, number + us) for t, number in out[at][0]), out[at][1]
        if out[WAITING]:
            rows = tuple(
                (t, max(alive + by, floor), max(again + by, floor), rank + us, box)
                for t, alive, again, rank, box in out[WAITING][0]
            )
            out[WAITING] = rows, out[WAITING][1]
        for at in (SHARES, GONE):
            if out[at]:
                out[at] = tuple((t, max(end + by, floor)) for t, end in out[at][0]), out[at][1]
        out[GONE] = _without_past(out[GONE])
        if by < 0:
            out[AWAKE] = ()
        out[BOXES] = tuple((box, mail, ttl + by) for box, mail, ttl in out[BOXES] if ttl + by > 0)
        ended = tuple(entry for entry in out[BLOCKED] if entry[1] + by <= 0)
        out[BLOCKED] = tuple(
            (box, timer + by, *rest) for box, timer, *rest in out[BLOCKED] if timer + by > 0
        )
        found = self._shifts[key] = (*self._canonical(out, top + us), ended)
        return found


def _without_past(gone: Any) -> Any:
    """Leave out the tokens that are not refused any longer: nobody sees whether they are there."""
    return gone and (tuple(row for row in gone[0] if row[1] > 0), gone[1])


def _items(table: Any) -> Iterator[Any]:
    at = 1
    while (value := table[at]) is not None:
        yield None if value is False else value
        at += 1
