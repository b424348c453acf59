"""One lock: shown in full, and taken from its holder."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from ..core.errors import LockUnavailable
from ..core.inspection import LockInfo, Outcome
from ..core.keys import lock_keys, name_for
from ..locks import inspector, key_prefix
from ..words import Said, facts, holder_facts
from .listing import Found, trouble
from .printing import pairs, printable
from .wording import user_name


def name_of(key: str) -> str:
    """The name in Redis of the lock ``key``. Raises ValueError for what cannot be a key."""
    name = name_for(key_prefix(), key)
    lock_keys(name)
    return name


def in_full(one: Found) -> list[str]:
    """All there is to say of a lock, and of each who holds it."""
    said = Said(one.info)
    lines = pairs([("Cache", one.using), *facts(said), *holder_facts(said)])
    for number, share in enumerate(said.shares, 1):
        lines += ["", f"Holder {number} of {len(said.shares)}"]
        own = [fact for fact in facts(share) if fact[0] in _OF_A_SHARE]
        lines += pairs([*own, *holder_facts(share)], indent="  ")
    return lines


_OF_A_SHARE = ("Held for", "Lease left", "Fence", "Fingerprint of the holder")


def seen_by(fingerprint: str | None, found: Sequence[Found]) -> tuple[list[Found], list[Found]]:
    """Those to be released, and those that are held by others than ``fingerprint`` stands for."""
    wanted, others = [], []
    for one in found:
        info = _held_by(fingerprint, one.info)
        if info is not None:
            wanted.append(Found(one.using, info))
        elif Said(one.info).is_held:
            others.append(one)
    return wanted, others


def _held_by(fingerprint: str | None, info: LockInfo) -> LockInfo | None:
    if not Said(info).is_held:
        return None
    if fingerprint is None or info.fingerprint == fingerprint:
        return info
    shares = (share for share in info.shares if share.fingerprint == fingerprint)
    return next((info.of_one(share) for share in shares), None)


def whom(one: Found) -> str:
    """Who holds a lock, for how long, and for how much longer."""
    said = Said(one.info)
    text = f"{one.info.key!r} in the cache {one.using!r} is held by {said.holder}"
    # Many may share it: here each is named, not the first few.
    if said.shares:
        text = f"{text.rpartition(' by ')[0]} by {', '.join(row.holder for row in said.shares)}"
    return printable(f"{text}, for {said.held_for}; lease left: {said.lease_left}")


def release(one: Found, reason: str, say: Callable[[str], object]) -> tuple[Outcome | None, str]:
    """Take it from the holder that was seen, and from no other; say what came of it.

    Gives the outcome, or None and what is wrong when it is not known.
    """
    look = inspector(one.using)
    where = printable(f"{one.info.key!r} in the cache {one.using!r}")
    by = f"{user_name()}@{socket.gethostname()}"
    try:
        outcome = look.force_release(one.info.name, one.info.fingerprint, by=by, reason=reason)
    except LockUnavailable as error:
        say(f"It is not known whether {where} was released: look at it again.")
        return None, trouble(error)
    if outcome is Outcome.RELEASED:
        say(printable(f"Released {where} from {Said(one.info).holder}."))
    elif outcome is Outcome.CHANGED_HANDS:
        say(f"{where} changed hands: nothing was released.")
    else:
        say(f"{where} is held by nobody any more: nothing was released.")
    return outcome, ""
