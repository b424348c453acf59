"""The guard: a process between with_lock and its command, and all that comes from it.

It starts the command. On Linux it adopts whatever the command leaves behind, so that it knows when
the last one has ended, however far that one went. When with_lock is gone, or says so, it kills all
that is left.

This file is run as a program, by ``python -IS``, and imports little so that it starts quickly.
"""

from __future__ import annotations

import _thread
import errno
import os
import sys
import time

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
#: What runs a script that does not say by what it is to be run.
SHELL = b"/bin/sh"
# Linux alone: that orphans come to us, that we die with our parent, and what we are called.
_SUBREAPER, _PDEATHSIG, _NAME = 36, 1, 15
_SHORTEST_LOOK, _LONGEST_LOOK = 0.005, 0.5
# The keys of a terminal that end a program go to the whole process group.
_TYPED = {signal.SIGINT, signal.SIGQUIT}
# How often those who are to stand still are looked for.
_LOOKS = 10


class Process:
    """A process as it was found; one that has ended stays until its parent takes note of it."""

    def __init__(self, pid: bytes | str, parent: bytes, state: bytes, name: bytes) -> None:
        self.pid, self.parent, self.name = int(pid), int(parent), name
        self.has_ended = state[:1] in (b"Z", b"X")


def adopt_orphans(*, adopts: bool = True) -> bool:
    """Become the parent of every descendant whose own parent ends; False where that cannot be."""
    return _prctl(_SUBREAPER, int(adopts))


def family(roots: set[int], *, nested: bool = True) -> list[int]:
    """Find what lives of all that descends from ``roots``, parents before their children.

    Without ``nested``, not what another with_lock among them looks after.
    """
    children: dict[int, list[Process]] = {}
    for each in _processes():
        children.setdefault(each.parent, []).append(each)
    # Those that have ended lead to others: the table was not read at a single moment, and their
    # children may have been found before they got another parent.
    known: dict[int, Process] = {}
    to_visit = [*roots]
    while to_visit:
        for each in children.get(to_visit.pop(), ()):
            if each.pid not in known.keys() | roots and (nested or each.name != NAME):
                known[each.pid] = each
                to_visit.append(each.pid)
    return [each.pid for each in known.values() if not each.has_ended]


def send(signum: int, roots: set[int], main: int) -> bool:
    """Send a signal to all of the family, once each; False when some may not be signalled.

    With KILL, also to what another with_lock among them looks after. ``main``: whom to send it to
    where the system tells of nobody, or 0.

    But for KILL and CONT, all are stopped before, so that nobody escapes by a fork, and no script
    goes on to its next line. They go on after it, children first, so that parents find them so.
    """
    stops = signum not in (signal.SIGKILL, signal.SIGCONT)
    members: list[int] = []
    # What starts others faster than we look is not waited for.
    for _ in range(_LOOKS):
        before, members = members, family(roots, nested=signum == signal.SIGKILL)
        new = [pid for pid in members if pid not in before]
        if not (stops and new):
            break
        for pid in new:
            _send(signal.SIGSTOP, pid)
    members = members or [main] * bool(main)
    is_allowed = [_send(signum, pid) for pid in members]
    for pid in reversed(members):
        _send(signal.SIGCONT, pid)
    return all(is_allowed)


def _send(signum: int, target: int) -> bool:
    try:
        os.kill(target, signum)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


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
        state, parent = rest.split(None, 2)[:2]
        yield Process(pid, parent, state, head.partition(b"(")[2])


def _from_ps() -> Iterator[Process]:
    import subprocess

    columns = ["-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "comm="]
    try:
        ps = subprocess.Popen(["ps", "-A", *columns], stdout=-1, stderr=subprocess.DEVNULL)
    except OSError:
        return
    for line in ps.communicate()[0].splitlines():
        pid, parent, state, name = line.split(None, 3)
        if int(pid) != ps.pid:
            yield Process(pid, parent, state, name.strip())


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
    """What the guard does, with all signals blocked, as what asks to end is not for it.

    ``control``: the connection to with_lock. ``mask``: the signals that the command has blocked.
    """

    def __init__(self, control: int, mask: Iterable[int]) -> None:
        self._control, self._mask = control, mask
        os.set_inheritable(control, False)
        # The command, until it has ended.
        self._main = 0
        adopt_orphans()
        _prctl(_NAME, NAME)

    def run(self) -> NoReturn:
        """Start the command when with_lock says so, and look after it until all of it is gone."""
        asked = self._asked()
        if asked:
            self._start(*asked)
            self._look_after()
        os._exit(0)

    def _asked(self) -> list[bytes]:
        """Return what :meth:`_start` is to start, or nothing if with_lock is gone."""
        # Not in our own command line, by which somebody may kill all that has a word in it.
        try:
            with open(self._control, "rb", closefd=False) as file:
                length = int(file.readline() or 0)
                data = file.read(length)
        except ConnectionError:
            return []
        return data.split(b"\0") if length and len(data) == length else []

    def _start(self, unset: bytes, path: bytes, *words: bytes) -> None:
        """``unset``: a variable that only Python has set, or nothing."""
        guard, (ready, to_begin) = os.getpid(), os.pipe()
        try:
            self._main = os.fork()
            if self._main:
                _thread.start_new_thread(self._outlive_with_lock, ())
        except (OSError, RuntimeError):
            # There are as many processes or threads as there may be.
            self._say("failed", errno.EAGAIN)
            self._say("gone")
            os._exit(0)
        if not self._main:
            try:
                os.close(to_begin)
                # Nothing comes from a guard that has ended.
                if os.read(ready, 1):
                    self._become(guard, unset, path, words)
            except OSError as error:
                self._say("failed", error.errno or 0)
            finally:
                os._exit(1)
        self._say("started", self._main)
        # What was typed before there was a command has come to us, and later to both. It waits
        # with all signals blocked, so that none comes to it twice.
        for number in signal.sigpending() & _TYPED:
            os.kill(self._main, number)
        os.write(to_begin, b"\n")
        # What ends the group of with_lock is not to end us. A session, as a parent in another group
        # of the same one would make the kernel believe that we continue what Ctrl-Z has stopped.
        os.setsid()

    def _become(self, guard: int, unset: bytes, path: bytes, words: tuple[bytes, ...]) -> None:
        if _prctl(_PDEATHSIG, signal.SIGKILL) and os.getppid() != guard:
            return
        if unset:
            os.unsetenv(unset)
        # The command starts as if there were no Python in between.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
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
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                # Where we cannot adopt, what the command leaves behind is lost to us.
                self._say("gone")
                os._exit(0)
            if pid == self._main:
                self._main = 0
                self._say("ended", os.waitstatus_to_exitcode(status))

    def _outlive_with_lock(self) -> NoReturn:
        """Kill all that is left, again and again, when with_lock has no more to say, or is gone."""
        try:  # noqa: SIM105 - contextlib takes long to import
            os.read(self._control, 1)
        except ConnectionError:
            # It was killed before it had read all that we said.
            pass
        pause = _SHORTEST_LOOK
        while True:
            send(signal.SIGKILL, {os.getpid()}, self._main)
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK)

    def _say(self, what: str, number: int = 0) -> None:
        try:  # noqa: SIM105 - contextlib takes long to import
            os.write(self._control, b"%s %d\n" % (what.encode(), number))
        except OSError:
            # with_lock is gone.
            pass


if __name__ == "__main__":  # pragma: no cover - it runs where nothing measures
    _Guard(int(sys.argv[1]), [int(number) for number in sys.argv[2].split(",") if number]).run()
