"""The scripts, and what is asked of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...protocol.keys import lock_keys

#: Returns, packed, what undoes a request.
Undo: TypeAlias = Callable[[], bytes] | None

_SCRIPTS = Path(__file__).parent / "scripts"


class Script:
    """A Lua script. Each file says at its head what its arguments and replies are."""

    def __init__(self, name: str) -> None:
        self.name = name
        source = (_SCRIPTS / f"{name}.lua").read_text()
        for part in ("acquire", "lib"):
            source = source.replace(f"--- {part}\n", (_SCRIPTS / f"{part}.lua").read_text())
        self.source = source
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.head = f"$7\r\nEVALSHA\r\n$40\r\n{self.sha}\r\n"


ACQUIRE, SEVERAL, RELEASE, RENEW, LOOK, LISTEN, LOCKED, FORCE = map(
    Script, ("acquire", "several", "release", "renew", "look", "listen", "locked", "force")
)


class Scripts(NamedTuple):
    """The scripts of one sort of locks.

    ``several``: takes several at once; None: they are taken one after the other. ``polls``: whether
    who waits asks again and again, as nobody wakes it. ``takes_token``: whether a caller can choose
    its token.
    """

    acquire: Script = ACQUIRE
    release: Script = RELEASE
    renew: Script = RENEW
    look: Script = LOOK
    locked: Script = LOCKED
    force: Script = FORCE
    several: Script | None = SEVERAL
    polls: bool = False
    takes_token: bool = True


PLAIN = Scripts()


@lru_cache(maxsize=1024)
def keys_of(name: str, index: str | None) -> tuple[str, ...]:
    """Return name, meta and, unless it is None, ``index``: the KEYS of each script.

    The scripts make the names of the other keys out of that of meta. Raises ValueError and
    TypeError for a name that no lock can have.
    """
    meta = lock_keys(name).meta
    return (name, meta) if index is None else (name, meta, index)


@lru_cache(maxsize=1024)
def _packed_keys(keys: tuple[str, ...]) -> str:
    """Return the number of ``keys`` and these as they are sent, if they are ASCII."""
    return "".join([f"${len(part)}\r\n{part}\r\n" for part in (str(len(keys)), *keys)])


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
        keys, args = self.keys, self.args
        body = "".join([f"${len(part)}\r\n{part}\r\n" for part in args])
        packed = f"*{len(keys) + len(args) + 3}\r\n{self.script.head}{_packed_keys(keys)}{body}"
        if packed.isascii():
            return packed.encode()
        # Lengths are of bytes.
        return pack("EVALSHA", self.script.sha, str(len(keys)), *keys, *args)

    def pack_in_full(self) -> bytes:
        """Return it as it is sent to any server."""
        return pack("EVAL", self.script.source, str(len(self.keys)), *self.keys, *self.args)


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
