"""``LockedCommand``: a management command that runs under a lock of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper

from django_setnx_lock.core.errors import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core.locks.layered import LockHandle
from django_setnx_lock.core.options import Unset, waiting_time
from django_setnx_lock.key_template import KeyTemplate, MissingValue
from django_setnx_lock.locks import make_one
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import user_name
from django_setnx_lock.options import DoorOptions, LockOptions


class LockedCommand(BaseCommand):
    """Runs a command under a lock: ``class Command(LockedCommand): lock_key = "import:<file>"``.

    ``lock_key``: the key; ``<names>`` are taken from the options and arguments of the command.
    ``lock_options``: those of :class:`~django_setnx_lock.options.LockOptions`, as
    ``{"timeout": 60}``. The lock is renewed unless they say otherwise, and ``blocking_timeout`` is
    without limit by default, as with_lock's. ``lock_arguments``: whether ``--no-wait`` and
    ``--wait`` are added to the command (True).

    While the command runs, ``self.lock`` is the handle of the lock. A command that cannot have it,
    or loses it, raises CommandError with a ``returncode`` (:doc:`commands`). Raises ValueError
    or TypeError for a malformed template or a bad option when the class is made.
    """

    lock_key: ClassVar[str] = ""
    lock_options: ClassVar[DoorOptions] = {}
    lock_arguments: ClassVar[bool] = True
    lock: LockHandle

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        LockOptions(**cls.lock_options)
        if cls.lock_key:
            KeyTemplate(cls.lock_key)

    def get_lock_key(self, options: Mapping[str, Any]) -> str:
        """Return the key for ``options``, as parsed. Override it for what no template can say.

        Raises MissingValue, TypeError or ValueError, which are wrong usage.
        """
        if not self.lock_key:
            raise TypeError('write for example lock_key = "import" in its class')
        return KeyTemplate(self.lock_key).resolve(options)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if self.lock_arguments:
            _add_arguments(parser, self._patience())
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        wait = self._wait(options)
        try:
            key = self.get_lock_key(options)
        except (MissingValue, TypeError, ValueError) as error:
            message = f"there is no key for the lock {self.lock_key!r} of this command: {error}"
            raise CommandError(message, returncode=statuses.USAGE) from error
        stderr = OutputWrapper(options["stderr"]) if options.get("stderr") else self.stderr
        with _translated(key), self._take(key, wait, stderr) as self.lock:
            return super().execute(*args, **options)

    def _take(self, key: str, wait: float | None, stderr: OutputWrapper) -> LockHandle:
        label = f"command {type(self).__module__.rpartition('.')[2]}"
        # Whatever RENEW says: a command may take longer than the lease.
        given: DoorOptions = {"label": label, "renew": True, **self.lock_options}
        faults = (ImproperlyConfigured, TypeError, ValueError)
        with statuses.given_for(faults, statuses.MISCONFIGURED):
            made = make_one(key, LockOptions(**given), user=user_name())
        try:
            return made.take(wait or 0)
        except LockBusy as busy:
            if wait is not None:
                raise CommandError(str(busy), returncode=statuses.BUSY) from busy
            stderr.write(f"waiting: {busy}", lambda plain: plain)
        return made.take(None)

    def _patience(self) -> float | None:
        """Return for how many seconds the command waits unless its arguments say otherwise."""
        wait = self.lock_options.get("blocking_timeout")
        return None if isinstance(wait, Unset) else wait

    def _wait(self, options: dict[str, Any]) -> float | None:
        """Take out of ``options`` for how many seconds to wait."""
        no_wait, wait = (options.pop(name, None) for name in ("lock_no_wait", "lock_wait"))
        if no_wait:
            wait = 0
        elif wait is None:
            wait = self._patience()
        with statuses.given_for(ValueError, statuses.USAGE):
            return waiting_time(wait, "--wait")


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except (LockLost, LockUnavailable) as error:
        # It may be about a lock that the command takes itself.
        if error.key != key:
            raise
        status = statuses.LOST if isinstance(error, LockLost) else statuses.UNAVAILABLE
        raise CommandError(str(error), returncode=status) from error


def _add_arguments(parser: CommandParser, wait: float | None) -> None:
    usual = "without limit" if wait is None else f"{wait:g} s"
    group = parser.add_argument_group("lock").add_mutually_exclusive_group()
    group.add_argument(
        "--no-wait",
        action="store_true",
        dest="lock_no_wait",
        help="Do not wait for the lock: exit with status 75 if somebody else holds it.",
    )
    group.add_argument(
        "--wait",
        type=float,
        dest="lock_wait",
        metavar="SEC",
        help=f"Wait for the lock so many seconds at most, then exit with 75. Default: {usual}.",
    )
