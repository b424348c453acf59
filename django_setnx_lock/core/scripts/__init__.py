"""The Lua scripts, one file an operation, each headed by its keys, arguments and replies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

# What several scripts have in them, where ``--- NAME`` stands; the last is in the first, too.
_PARTS = ("prelude", "timestamp", "reading")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 by which EVALSHA names it."""

    name: str
    source: str
    sha: str

    @classmethod
    def load(cls, name: str) -> Script:
        folder = resources.files(__name__)
        constants, source, *parts = (
            folder.joinpath(f"{part}.lua").read_text(encoding="utf-8")
            for part in ("constants", name, *_PARTS)
        )
        for part, text in zip(_PARTS, parts, strict=True):
            source = source.replace(f"--- {part}\n", text)
        source = constants + source
        # Redis names scripts by SHA-1; nothing is secured by it.
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        return cls(name, source, sha)


ACQUIRE = Script.load("acquire")
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

POLLING_ACQUIRE = Script.load("polling_acquire")
POLLING_RELEASE = Script.load("polling_release")
POLLING_LEAVE = Script.load("polling_leave")
POLLING_RENEW = Script.load("polling_renew")
POLLING_FORCE = Script.load("polling_force")
POLLING_INSPECT = Script.load("polling_inspect")
