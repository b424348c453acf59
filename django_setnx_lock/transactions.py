"""Puts the release of locks off until the transactions of the caller have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from django.core.exceptions import ImproperlyConfigured

from .conf import SETTING, get_config
from .core import sharing
from .core.place import place_of
from .open_transactions import PutOff, open_transactions, put_off_here

if TYPE_CHECKING:
    from .core.grant import Grant
    from .core.held import Held
    from .core.target import Target

    Release = Literal["commit", "exit"]

RELEASES = ("commit", "exit")


def checked_release(release: Release | None) -> Release | None:
    """``release``. Raises ValueError if it is none."""
    if release is not None and release not in RELEASES:
        raise ValueError(f"release is 'commit', 'exit' or None, not {release!r}")
    return release


def waits_for_commit(release: Release | None) -> bool:
    """Whether a lock with ``release`` is held until the end of a transaction.

    None: as the setting RELEASE says. Raises ValueError for what is none, ImproperlyConfigured
    where the setting is.
    """
    if checked_release(release) is None:
        release = get_config()["RELEASE"]
        if release not in RELEASES:
            raise ImproperlyConfigured(
                f"{SETTING}['RELEASE'] must be 'commit' or 'exit', not {release!r}"
            )
    return release == "commit"


class AtCommit:
    """The :class:`~.core.ending.Ending` of a lock that outlives the transaction around it."""

    def puts_off(self, held: Held) -> bool:
        around = open_transactions()
        if not around:
            return False
        if held.root is not held and any(
            one.held.root is held.root and one.waits_for.issuperset(around)
            for one in around[0].put_off
        ):
            # One of several shares is enough to keep it.
            return False
        one = PutOff(held, set(around))
        for transaction in around:
            transaction.put_off.append(one)
        return True

    def kept(self, target: Target) -> Grant | None:
        for one in put_off_here():
            root = one.held.root
            if root.name == target.keys.name and _may_be_had(root, target):
                return root
        return None


AT_COMMIT = AtCommit()


def _may_be_had(root: Grant, target: Target) -> bool:
    return (
        root.target.dialect == target.dialect
        and place_of(root.client) == place_of(target.client)
        and root.is_here
        and not sharing.is_over(root)
        and sharing.is_put_off(root)
    )
