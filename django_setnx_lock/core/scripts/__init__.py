"""The Lua scripts, one file an operation, each headed by its keys, arguments and replies."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 by which EVALSHA names it."""

    name: str
    source: str
    sha: str

    @classmethod
    def load(cls, name: str) -> Script:
        source = _text("constants") + _text(name)
        # The first two have a place for the third.
        for part in ("acquire", "leave", "prelude", "timestamp"):
            source = source.replace(f"--- {part}\n", _text(part))
        # Redis names scripts by SHA-1; nothing is secured by it.
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        return cls(name, source, sha)


@functools.cache
def _text(part: str) -> str:
    return resources.files(__name__).joinpath(f"{part}.lua").read_text(encoding="utf-8")


ACQUIRE = Script.load("acquire")
ACQUIRE_ALL = Script.load("acquire_all")
RELEASE = Script.load("release")
LEAVE = Script.load("leave")
LOOK = Script.load("look")
RENEW = Script.load("renew")
CHECK = Script.load("check")
SWAP = Script.load("swap")
FORCE = Script.load("force")
INSPECT = Script.load("inspect")

TIMESTAMP_ACQUIRE = Script.load("timestamp_acquire")
TIMESTAMP_RELEASE = Script.load("timestamp_release")
TIMESTAMP_LEAVE = Script.load("timestamp_leave")
TIMESTAMP_RENEW = Script.load("timestamp_renew")
TIMESTAMP_CHECK = Script.load("timestamp_check")
TIMESTAMP_LOCKED = Script.load("timestamp_locked")
TIMESTAMP_FORCE = Script.load("timestamp_force")
