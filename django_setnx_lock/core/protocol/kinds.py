"""How else than by the plain scripts a lock may stand in Redis: what its ``protocol`` says."""

from __future__ import annotations

import re
from functools import cache, lru_cache, partial

from .requests import PLAIN, Script, Scripts, packed_keys, text_of

_WHOLE = re.MULTILINE | re.DOTALL
_UNITS = {"timestamp-s": 1000, "timestamp-ms": 1}
#: What ``protocol`` may be.
PROTOCOLS = ("setnx", *_UNITS, "hosted")
#: What tokens begin with: others see that nobody is woken by who holds it, or take the long way.
PREFIXES = {"timestamp-s": "time:", "timestamp-ms": "time:", "hosted": "poll-"}
_BESIDE = ("waiters", "waiting", "shares", "holders", "gone", "forced")
_KEYS = ("NAME", "META", *(end.upper() for end in _BESIDE), "INDEX")
# Servers look for KEYS in the text, or refuse others as it runs: each stands where it is used.
_DECLARED = (
    (r"local (NAME|WAITERS|SHARES), .*\n", ""),
    (r"local BESIDE, token, time = .*, ", "local token, time = "),
    (r"BESIDE \.\. '(\w+)'", lambda found: found[1].upper()),
    # Of several locks, the first alone.
    (r"inspect\(\{.*?\}\)", "inspect(KEYS)"),
    (r"for at = 1, #KEYS - 1, 2 do", "for at = 1, 1 do"),
    # Nobody reads mail.
    (r"ARGV\[5\]", "''"),
    (rf"(?<!')\b({'|'.join(_KEYS)})\b", lambda found: f"KEYS[{_KEYS.index(found[1]) + 1}]"),
)


@lru_cache(maxsize=1024)
def _pack_declared(keys: tuple[str, ...]) -> str:
    return packed_keys(_declared(keys))


class Declared(Script):
    """A script in which each key that it touches is one of its KEYS. It wakes nobody."""

    words = Script.words + len(_BESIDE)
    pack_keys = staticmethod(_pack_declared)

    def keys_for(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return _declared(keys)


def _declared(keys: tuple[str, ...]) -> tuple[str, ...]:
    name, meta, *index = keys
    return (name, meta, *(meta.removesuffix("meta") + end for end in _BESIDE), *index)


def _with_functions(kind: str, source: str) -> str:
    """Return ``source`` with the functions of the file ``kind`` in the place of its own.

    What stands before each of them comes with it.
    """
    before = ""
    for part in re.split(r"(?<=^end\n)", text_of(kind), flags=re.MULTILINE):
        before += part
        name = re.search(r"^local function (\w+)", part, re.MULTILINE)
        own = name and re.search(rf"^local function {name[1]}\(.*?^end\n", source, _WHOLE)
        if own:
            source, before = source.replace(own[0], before), ""
    return source


def _declare(source: str) -> str:
    source = _with_functions("hosted", source)
    for words, instead in _DECLARED:
        source = re.sub(words, instead, source)
    return source


@cache
def script_of(name: str, *, protocol: str, expire: bool = True) -> Script:
    """Return the script ``name`` for locks with that ``protocol``; ``expire`` as in RedisLock."""
    if protocol == "hosted":
        return Declared(name, _declare)
    if protocol == "setnx":
        return Script(name)
    said = f"local UNIT, VANISHES = {_UNITS[protocol]}, {str(expire).lower()}"

    def edit(source: str) -> str:
        source = _with_functions("timestamp", source)
        return source.replace("local UNIT, VANISHES = 1, true", said)

    return Script(name, edit)


@cache
def scripts_of(protocol: str, *, expire: bool = True) -> Scripts:
    """Return the scripts of locks with that ``protocol``."""
    if protocol == "setnx":
        return PLAIN
    is_hosted, script = protocol == "hosted", partial(script_of, protocol=protocol, expire=expire)
    names = ("acquire", "release", "renew", "locked" if is_hosted else "taken")
    # Such a server may be a cluster behind a proxy.
    several = None if is_hosted else script("several")
    acquire, release, renew, locked = map(script, names)
    return Scripts(acquire, release, renew, locked, several, polls=True)
