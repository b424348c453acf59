"""The Lua scripts, one file an operation, each headed by its keys, arguments and replies."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources

# What a script may be put together from, by lines such as "--- prelude".
# Some of them have places for those that follow.
_PARTS = ("acquire", "leave", "prelude", "timestamp", "shared", "reading", "adding")


@functools.cache
def _read(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 by which EVALSHA names it."""

    name: str
    source: str
    sha: str

    @classmethod
    def load(cls, name: str) -> Script:
        constants, own = _read("constants"), _read(name)
        for part in _PARTS:
            own = own.replace(f"--- {part}\n", _read(part))
        source = constants + own
        # Redis names scripts by SHA-1; nothing is secured by it.
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        return cls(name, source, sha)


ACQUIRE = Script.load("acquire")
ACQUIRE_ALL = Script.load("acquire_all")
RELEASE = Script.load("release")
LEAVE = Script.load("leave")
LOOK = Script.load("look")
RENEW = Script.load("renew")
RENEW_ALONE = Script.load("renew_alone")
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

SHARED_ACQUIRE = Script.load("shared_acquire")
SHARED_RELEASE = Script.load("shared_release")
SHARED_LEAVE = Script.load("shared_leave")
SHARED_LOOK = Script.load("shared_look")
SHARED_RENEW = Script.load("shared_renew")
SHARED_CHECK = Script.load("shared_check")
SHARED_FORCE = Script.load("shared_force")
SHARED_DOWNGRADE = Script.load("shared_downgrade")

POLLING_ACQUIRE = Script.load("polling_acquire")
POLLING_RELEASE = Script.load("polling_release")
POLLING_LEAVE = Script.load("polling_leave")
POLLING_RENEW = Script.load("polling_renew")
POLLING_FORCE = Script.load("polling_force")
POLLING_INSPECT = Script.load("polling_inspect")
