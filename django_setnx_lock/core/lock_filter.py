"""Which locks are looked for: by a text, by who holds them, by the form of the key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .holder import Holder


@dataclass(frozen=True, kw_only=True, slots=True)
class LockFilter:
    """What a lock has to have; "" is no condition, and upper and lower case differ.

    ``text``: a part of the key, of a holder's host, user or label, or a whole process number.
    ``host`` and ``user``: those of a holder, as they are shown. ``has_key``: whether a key is of
    the form that is looked for (None: any is), and ``key_start`` what all such keys begin with.
    """

    text: str = ""
    host: str = ""
    user: str = ""
    has_key: Callable[[str], bool] | None = field(default=None, compare=False)
    key_start: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.host or self.user or self.has_key)

    def fits(self, key: str, holders: Iterable[Holder]) -> bool:
        """Return whether a lock with that ``key`` and these ``holders`` has all of it."""
        if self.has_key and not self.has_key(key):
            return False
        if (self.host or self.user) and not any(map(self._is_held_by, holders)):
            return False
        return self.text in key or any(map(self._is_in, holders))

    @property
    def conditions(self) -> str:
        """The conditions for the server, which knows texts alone: JSON.

        Each is a list of texts, one of which has to be in the holder's record, and whether it may
        be in the key as well.
        """
        exact = filter(None, (self.host, self.user))
        wanted = [([json.dumps(one)], False) for one in exact]
        if self.text:
            # As it is in a key, and inside a string of JSON.
            wanted.append(([self.text, json.dumps(self.text)[1:-1]], True))
        return json.dumps(wanted)

    def _is_held_by(self, holder: Holder) -> bool:
        return self.host in ("", holder.host) and self.user in ("", holder.user)

    def _is_in(self, holder: Holder) -> bool:
        texts = (holder.host, holder.user, holder.label)
        return str(holder.pid) == self.text or any(self.text in one for one in texts)
