"""The Lua scripts, one file an operation, each headed by its keys, arguments and replies."""

from __future__ import annotations

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
        folder = resources.files(__name__)
        constants, prelude, own = (
            folder.joinpath(f"{part}.lua").read_text(encoding="utf-8")
            for part in ("constants", "prelude", name)
        )
        source = constants + own.replace("--- prelude\n", prelude)
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
