"""The scripts, and what is asked of them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

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


ACQUIRE, SEVERAL, RELEASE, RENEW, LOOK, LISTEN, FORCE = map(
    Script, ("acquire", "several", "release", "renew", "look", "listen", "force")
)


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


class Command(NamedTuple):
    """One command of Redis, in the place of a :class:`Request`."""

    parts: tuple[str, ...]

    def pack(self) -> bytes:
        """Return it as it is sent."""
        return pack(*self.parts)

    def pack_in_full(self) -> bytes:
        """Return the same."""
        return self.pack()


AnyRequest: TypeAlias = Request | Command


def pack(*parts: str) -> bytes:
    """Return a command as it is sent."""
    in_bytes = [part.encode() for part in parts]
    body = b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in in_bytes])
    return b"*%d\r\n%b" % (len(parts), body)
