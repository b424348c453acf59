"""The guard: a process between with_lock and its command, and all that comes from it.

It starts the command. On Linux it adopts whatever the command leaves behind, so that it knows when
the last one has ended, however far that one went. When with_lock is gone, or says so, it kills all
that is left.

This file is run as a program, by ``python -IS``, and imports little so that it starts quickly.
"""

from __future__ import annotations

import errno
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Iterator
    from typing import NoReturn
else:
    # Without the enumerations of signal, which take a third of the start.
    import _signal as signal

#: What ps calls it: 15 characters at most.
NAME = b"with_lock-guard"
#: With so many digits begins what it is asked, which is followed by its length in bytes.
LENGTH = 20
#: What runs a script that does not say by what it is to be run.
SHELL = b"/bin/sh"
# Linux alone: that orphans come to us, that we die with our parent, and what we are called.
_SUBREAPER, _PDEATHSIG, _NAME = 36, 1, 15
# Whether we leave a core.
_DUMPABLE = 4
_SHORTEST_LOOK, _LONGEST_LOOK = 0.005, 0.5
# The keys of a terminal that end a program go to the whole process group.
_TYPED = {signal.SIGINT, signal.SIGQUIT}
# How often those who are to stand still are looked for.
_LOOKS = 10


class Process:
    """A process as it was found; one that has ended stays until its parent takes note of it."""

    def __init__(self, pid: int, parent: int, group: int, name: bytes, *, has_ended: bool) -> None:
        self.pid, self.parent, self.group, self.name = pid, parent, group, name
        self.has_ended = has_ended


def adopt_orphans(*, adopts: bool = True) -> bool:
    """Become the parent of every descendant whose own parent ends; False where that cannot be."""
    return _prctl(_SUBREAPER, int(adopts))


def forgo_core() -> None:
    """Leave no core, also not to a program that would be started for it."""
    _prctl(_DUMPABLE, 0)


def family(roots: set[int], *, nested: bool = True) -> tuple[list[Process], set[int]]:
    """Find what lives of all that descends from ``roots``, and the process groups of others.

    Without ``nested``, not what another with_lock among them looks after.
    """
    found = list(_processes())
    children: dict[int, list[Process]] = {}
    for each in found:
        children.setdefault(each.parent, []).append(each)
    known: dict[int, Process] = {}
    to_visit = [*roots]
    while to_visit:
        for each in children.get(to_visit.pop(), ()):
            if each.pid not in known and (nested or each.name != NAME):
                known[each.pid] = each
                to_visit.append(each.pid)
    # Those that have ended only lead to others: the table was not read at a single moment, and
    # their children may have been found before they got another parent.
    living = [each for each in found if not each.has_ended]
    ours = known.keys() - roots
    members = [each for each in known.values() if each.pid in ours and not each.has_ended]
    return members, {each.group for each in living if each.pid not in ours}


def send(signums: Iterable[int], roots: set[int], main: int) -> bool:
    """Send the signals to all of the family, once each; False when some may not be signalled.

    With KILL, also to what another with_lock among them looks after. ``main``: whom to send them to
    where the system tells of nobody, or 0.

    Whole groups are signalled where there is nobody else in them: nobody escapes that by a fork.
    From others nobody escapes as they stand still before; the signals have to let them go on.
    """
    is_last = signal.SIGKILL in signums
    stopped: set[int] = set()
    # What starts others faster than we look is not waited for.
    for _ in range(_LOOKS):
        members, of_others = family(roots, nested=is_last)
        among_others = {each.pid for each in members if each.group in of_others}
        if is_last or among_others <= stopped:
            break
        for pid in among_others - stopped:
            try:  # noqa: SIM105 - contextlib takes long to import
                os.kill(pid, signal.SIGSTOP)
            except OSError:
                # It has ended, or may not be signalled.
                pass
        stopped |= among_others
    # Parents first, so that no script goes on to its next line. A dict, as that has an order.
    targets = {each.pid if each.group in of_others else -each.group: None for each in members}
    if main and not targets:
        targets = {main: None}
    allowed = True
    for target in targets:
        for signum in signums:
            try:
                os.kill(target, signum)
            except ProcessLookupError:
                pass
            except PermissionError:
                allowed = False
    return allowed


def _processes() -> Iterator[Process]:
    if sys.platform != "linux":
        yield from _from_ps()
        return
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            # It numbers the processes of another PID namespace.
            return
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                head, _, rest = file.read().rpartition(b")")
        except OSError:
            continue
        state, parent, group = rest.split(None, 3)[:3]
        name = head.partition(b"(")[2]
        yield Process(int(pid), int(parent), int(group), name, has_ended=state in b"ZX")


def _from_ps() -> Iterator[Process]:
    import subprocess

    columns = ["-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=", "-o", "comm="]
    try:
        with subprocess.Popen(
            ["ps", "-A", *columns], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as ps:
            for line in ps.stdout or ():
                pid, parent, group, state, name = line.split(None, 4)
                has_ended = state.startswith(b"Z")
                if int(pid) != ps.pid:
                    yield Process(
                        int(pid), int(parent), int(group), name.strip(), has_ended=has_ended
                    )
    except OSError:
        return


def _prctl(option: int, value: int | bytes) -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        given = ctypes.c_ulong(value) if isinstance(value, int) else value
        return bool(ctypes.CDLL(None).prctl(option, given, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        # A Python without ctypes.
        return False


class _Guard:  # pragma: no cover - it runs where nothing measures
    """What the guard does, with all signals blocked, as what asks to end is not for it."""

    def __init__(self, control: int, mask: Iterable[int]) -> None:
        # The signals that the command has blocked, and the connection to with_lock.
        self._mask, self._control = mask, control
        os.set_inheritable(control, False)
        # The command, until it has ended.
        self._main = 0
        adopt_orphans()
        _prctl(_NAME, NAME)

    def run(self) -> NoReturn:
        """Start what with_lock asks for, and look after it until all of it is gone."""
        options, path, *words = self._asked()
        self._start(options, path, words)
        self._look_after()

    def _asked(self) -> list[bytes]:
        data, length = b"", LENGTH
        while len(data) < length:
            more = self._hear(length - len(data))
            if not more:
                os._exit(0)
            data += more
            if len(data) == LENGTH == length:
                length += int(data)
        return data[LENGTH:].split(b"\0")

    def _start(self, options: bytes, path: bytes, words: list[bytes]) -> None:
        failed, to_fail = os.pipe()
        ready, to_begin = os.pipe()
        guard = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            # There are as many processes as there may be.
            self._say("failed", error.errno or 0)
            os._exit(0)
        if not pid:
            try:
                os.close(to_begin)
                os.read(ready, 1)
                self._become(options, path, words, guard)
            except OSError as error:
                os.write(to_fail, b"%d" % (error.errno or 0))
            finally:
                os._exit(1)
        os.close(to_fail)
        os.close(ready)
        # What was typed before there was a command has come to us, and later to both. It waits
        # with all signals blocked, so that none comes to it twice.
        for number in signal.sigpending() & _TYPED:
            os.kill(pid, number)
        os.close(to_begin)
        # What ends the group of with_lock is not to end us. A session, as a parent in another group
        # of the same one would make the kernel believe that we continue what Ctrl-Z has stopped.
        os.setsid()
        if number := os.read(failed, 16):
            os.waitpid(pid, 0)
            self._say("failed", int(number))
            os._exit(0)
        os.close(failed)
        self._main = pid
        self._say("started", pid)

    def _become(self, options: bytes, path: bytes, words: list[bytes], guard: int) -> None:
        if _prctl(_PDEATHSIG, signal.SIGKILL) and os.getppid() != guard:
            return
        if options == b"no LC_CTYPE":
            os.unsetenv("LC_CTYPE")
        # The command starts as if there were no Python in between.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._execute(path, words)

    def _execute(self, path: bytes, words: list[bytes]) -> None:
        try:
            os.execv(path, words)  # noqa: S606 - it is what was asked for
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            with open(path, "rb") as file:
                if b"\0" in file.read(128):
                    raise
            # A script without a first line that names its interpreter, as shells take it.
            os.execv(SHELL, [SHELL, path, *words[1:]])  # noqa: S606

    def _look_after(self) -> NoReturn:
        wake, writer = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        events = select.poll()
        events.register(wake, select.POLLIN)
        events.register(self._control, select.POLLIN)
        pause, is_ending = _SHORTEST_LOOK, False
        while True:
            # Where we cannot adopt, what the command leaves behind is lost to us.
            if not self._reap():
                self._say("gone")
                os._exit(0)
            if is_ending:
                send([signal.SIGKILL], {os.getpid()}, self._main)
            for fd, _ in events.poll(pause * 1000 if is_ending else None):
                if fd == wake:
                    os.read(wake, 4096)
                else:
                    # with_lock has no more to say, or is gone.
                    is_ending = True
                    events.unregister(self._control)
            pause = min(pause * 1.5, _LONGEST_LOOK)

    def _reap(self) -> bool:
        """Take note of children that have ended; return False when there are none any more."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                if pid == self._main:
                    self._main = 0
                    self._say("ended", os.waitstatus_to_exitcode(status))
        except ChildProcessError:
            return False

    def _hear(self, size: int) -> bytes:
        """Return what with_lock says; nothing when it has no more to say, or is gone."""
        try:
            return os.read(self._control, size)
        except ConnectionError:
            # It was killed before it had read all that we said.
            return b""

    def _say(self, *words: str | int) -> None:
        try:  # noqa: SIM105 - contextlib takes long to import
            os.write(self._control, (" ".join(map(str, words)) + "\n").encode())
        except OSError:
            # with_lock is gone.
            pass


if __name__ == "__main__":  # pragma: no cover - it runs where nothing measures
    _Guard(int(sys.argv[1]), [int(number) for number in sys.argv[2].split(",") if number]).run()
