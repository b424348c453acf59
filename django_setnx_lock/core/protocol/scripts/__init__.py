"""The Lua scripts, one file an operation, each headed by its keys, arguments and replies."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from importlib import resources

# The parts that a script may be put together from, by lines such as "--- prelude".
# Some of them have places for those that follow.
_PARTS = (
    "acquire",
    "cancel",
    "keys",
    "shared_keys",
    "letting_go",
    "has_let_go",
    "hosted",
    "timestamp",
    "prelude",
    "following",
    "clock",
    "shared",
    "grouping",
    "nesting",
    "waiting",
    "reading",
    "asking",
    "stopping",
    "requesting",
)


@functools.cache
def _read(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 by which EVALSHA names it."""

    name: str
    source: str = field(repr=False)
    sha: str

    @classmethod
    def load(cls, name: str, kind: str = "") -> Script:
        """Put a script together. ``kind``: of a lock without a queue, for those in common."""
        constants, own = _read("constants"), _read(f"unqueued_{name}" if kind else name)
        own = own.replace("--- unqueued\n", _read("unqueued").replace("--- KIND", f"--- {kind}"))
        for part in _PARTS:
            own = own.replace(f"--- {part}\n", _read(part))
        source = constants + own
        return cls.of(f"{kind}_{name}" if kind else name, source)

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        """Return the script of that source."""
        # Redis names scripts by SHA-1; nothing is secured by it.
        return cls(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


ACQUIRE = Script.load("acquire")
ACQUIRE_ALL = Script.load("acquire_all")
RELEASE = Script.load("release")
CANCEL = Script.load("cancel")
LOOK = Script.load("look")
RENEW = Script.load("renew")
RENEW_ALONE = Script.load("renew_alone")
CHECK = Script.load("check")
SWAP = Script.load("swap")
FORCE = Script.load("force")
REQUEST_STOP = Script.load("request_stop")
INSPECT = Script.load("inspect")
LIVING = Script.load("living")
LISTING = Script.load("listing")
DEADLOCK = Script.load("deadlock")

TIMESTAMP_ACQUIRE = Script.load("acquire", "timestamp")
TIMESTAMP_RELEASE = Script.load("release", "timestamp")
TIMESTAMP_CANCEL = Script.load("cancel", "timestamp")
TIMESTAMP_RENEW = Script.load("renew", "timestamp")
TIMESTAMP_CHECK = Script.load("check", "timestamp")
TIMESTAMP_FORCE = Script.load("force", "timestamp")
TIMESTAMP_LOCKED = Script.load("locked", "timestamp")

SHARED_ACQUIRE = Script.load("shared_acquire")
SHARED_RELEASE = Script.load("shared_release")
SHARED_CANCEL = Script.load("shared_cancel")
SHARED_LOOK = Script.load("shared_look")
SHARED_RENEW = Script.load("shared_renew")
SHARED_CHECK = Script.load("shared_check")
SHARED_FORCE = Script.load("shared_force")
SHARED_REQUEST_STOP = Script.load("shared_request_stop")

HOSTED_ACQUIRE = Script.load("acquire", "hosted")
HOSTED_RELEASE = Script.load("release", "hosted")
HOSTED_CANCEL = Script.load("cancel", "hosted")
HOSTED_RENEW = Script.load("renew", "hosted")
HOSTED_CHECK = Script.load("check", "hosted")
HOSTED_FORCE = Script.load("force", "hosted")
HOSTED_INSPECT = Script.load("hosted_inspect")
