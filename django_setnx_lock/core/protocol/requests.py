"""The scripts, and what is asked of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from .keys import meta_key

#: Returns, packed, what undoes a request.
Undo: TypeAlias = Callable[[], bytes] | None

_SCRIPTS = Path(__file__).parent / "scripts"


def packed_keys(keys: tuple[str, ...]) -> str:
    """Return the number of ``keys`` and these as they are sent, if they are ASCII."""
    return "".join([f"${len(part)}\r\n{part}\r\n" for part in (str(len(keys)), *keys)])


class Script:
    """A Lua script. Each file says at its head what its arguments and replies are.

    ``edit``: returns another text in the place of the whole.
    """

    # How many are before keys and arguments: EVALSHA, its SHA-1, and the number of keys.
    words = 3
    # Returns the number of KEYS for those of a request, and these as they are sent, if ASCII.
    pack_keys: Callable[[tuple[str, ...]], str] = staticmethod(lru_cache(maxsize=1024)(packed_keys))

    def __init__(self, name: str, edit: Callable[[str], str] = str) -> None:
        self.name = name
        self.source = edit(text_of(name))
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.head = f"$7\r\nEVALSHA\r\n$40\r\n{self.sha}\r\n"

    def keys_for(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the KEYS of the script for ``keys``."""
        return keys


def text_of(name: str) -> str:
    """Return that script. ``--- part`` in it stands for another file, where it is named first."""
    source, known = f"--- {name}\n", set[str]()
    while found := re.search(r"^--- (\w+)\n", source, re.MULTILINE):
        part = "" if found[1] in known else (_SCRIPTS / f"{found[1]}.lua").read_text()
        known.add(found[1])
        source = f"{source[: found.start()]}{part}{source[found.end() :]}"
    return source


ACQUIRE, SEVERAL, RELEASE, RENEW, LOOK, LISTEN, LOCKED = map(
    Script, ("acquire", "several", "release", "renew", "look", "listen", "locked")
)


class Scripts(NamedTuple):
    """The scripts of one sort of locks.

    ``several``: takes several at once; None: they are taken one after the other. ``polls``: whether
    who waits asks again and again, as nobody wakes it; then no caller can choose its token.
    """

    acquire: Script = ACQUIRE
    release: Script = RELEASE
    renew: Script = RENEW
    locked: Script = LOCKED
    several: Script | None = SEVERAL
    polls: bool = False


PLAIN = Scripts()


@lru_cache(maxsize=1024)
def keys_of(name: str, index: str | None) -> tuple[str, ...]:
    """Return name, meta and, unless it is None, ``index``: the KEYS of each script.

    The scripts make the names of the other keys out of that of meta. Raises ValueError and
    TypeError for a name that no lock can have.
    """
    meta, name = meta_key(name), str.__str__(name)
    return (name, meta) if index is None else (name, meta, index)


class Request(NamedTuple):
    """One run of a script, which may be sent twice. ``args`` begin with a token mostly."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[str, ...]

    def __repr__(self) -> str:
        # Reports of errors show the variables of each frame: not the token.
        return f"<Request {self.script.name} {self.keys[0]!r}>"

    def pack(self) -> bytes:
        """Return it as it is sent to a server that knows the script."""
        script, keys, args = self
        body = "".join([f"${len(part)}\r\n{part}\r\n" for part in args])
        count = len(keys) + len(args) + script.words
        packed = f"*{count}\r\n{script.head}{script.pack_keys(keys)}{body}"
        if packed.isascii():
            return packed.encode()
        # Lengths are of bytes.
        return self._pack("EVALSHA", script.sha)

    def pack_in_full(self) -> bytes:
        """Return it as it is sent to any server."""
        return self._pack("EVAL", self.script.source)

    def _pack(self, *words: str) -> bytes:
        keys = self.script.keys_for(self.keys)
        return pack(*words, str(len(keys)), *keys, *self.args)


class InFull(Request):
    """A request that is sent once, as no server has to know its script."""

    __slots__ = ()
    pack = Request.pack_in_full


class Command(Request):
    """One command that is no script: ``args`` are its words, ``keys`` the keys among them."""

    __slots__ = ()

    @classmethod
    def of(cls, *words: str, keys: tuple[str, ...] = ()) -> Command:
        """Return the command of these words."""
        no_script: Any = None
        return cls(no_script, keys, words)

    def __repr__(self) -> str:
        return f"<Command {self.args[0]}>"

    def pack(self) -> bytes:
        return pack(*self.args)

    pack_in_full = pack


def pack(*parts: str) -> bytes:
    """Return a command as it is sent; surrogates stand for bytes that are no UTF-8."""
    in_bytes = [part.encode("utf-8", "surrogateescape") for part in parts]
    body = b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in in_bytes])
    return b"*%d\r\n%b" % (len(parts), body)
