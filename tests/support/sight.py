"""What an operator sees and does, as far as the contract needs it before the new core has that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django_setnx_lock.core import Holder, LockInfo, Outcome, ShareInfo, State, WaiterInfo
from tests.support import seams


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


class Sight:
    """Looks at names in the place of the inspector. What stands for a token is that token."""

    def __init__(self, client: Any, prefix: str, **options: Any) -> None:
        self._client = client
        self._prefix = prefix

    def get(self, name: str, **options: Any) -> LockInfo:
        """Return who holds ``name``, alone or with others, and who waits for it."""
        ask, stem = self._client, f"{{{name}}}"
        value = text(ask.get(name)) if text(ask.type(name)) in ("string", "none") else ""
        fence, _, rest = text(ask.get(f"{stem}:meta")).partition(" ")
        owner, _, record = rest.partition(" ")
        shares = [
            self._share(text(token), text(ask.hget(f"{stem}:holders", token)))
            for token in ask.zrange(f"{stem}:shares", 0, -1)
            if value.startswith(("readers:", "permits:"))
        ]
        waiters = [
            self._waiter(at, text(token), text(ask.hget(f"{stem}:waiting", token)))
            for at, token in enumerate(ask.zrange(f"{stem}:waiters", 0, -1), 1)
        ]
        is_ours = bool(value) and owner == value
        return LockInfo(
            key=name.removeprefix(self._prefix),
            name=name,
            state=State.HELD if is_ours else State.FOREIGN if value else State.FREE,
            holder=Holder.from_json(record) if is_ours else None,
            fence=int(fence) if is_ours else None,
            waiting=len(waiters),
            waiters=tuple(waiters),
            remaining=ask.pttl(name) / 1000 if value else None,
            shares=tuple(shares),
            fingerprint=value,
        )

    def find(self) -> SimpleNamespace:
        """Return all that are held, by their names."""
        names = sorted(text(name) for name in self._client.scan_iter(f"{self._prefix}*"))
        return SimpleNamespace(locks=[self.get(name) for name in names])

    def force_release(
        self, name: str, fingerprint: str, *, by: str = "", reason: str = "", **options: Any
    ) -> Outcome:
        """Take ``name`` from the holder whose token is ``fingerprint``."""
        done = seams.force(self._client, name, fingerprint, by, reason)
        return Outcome.RELEASED if done else Outcome.CHANGED_HANDS

    @staticmethod
    def _share(token: str, said: str) -> ShareInfo:
        fence, _, record = said.partition(" ")
        return ShareInfo(
            holder=Holder.from_json(record),
            fence=int(fence or 0),
            remaining=0.0,
            held_for=0.0,
            fingerprint=token,
        )

    @staticmethod
    def _waiter(at: int, token: str, said: str) -> WaiterInfo:
        # ALIVE-UNTIL ASKS-AGAIN-AT RANK LENGTH MAILBOX RECORD
        *_, length, rest = said.split(" ", 4)
        record = rest[int(length) + 1 :]
        return WaiterInfo(
            position=at, holder=Holder.from_json(record), waited=None, fingerprint=token
        )
