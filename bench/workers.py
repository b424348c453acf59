"""The processes that are measured: started, spoken to over a pipe, and all killed at the end."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from bench import wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

ANSWER_SECONDS = 60.0
P = ParamSpec("P")


class JobFailed(Exception):
    """A job ended in an error or did not answer; the message says which."""


@dataclass(frozen=True)
class Failure:
    """What a job sends in place of its answer."""

    what: str


class Pipe:
    """One end of the pipe between a job and the bench."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def say(self, message: Any) -> None:
        self._connection.send(message)

    def hear(self, seconds: float | None = ANSWER_SECONDS) -> Any:
        """Return what the other end says. Raises JobFailed, and EOFError when it has gone."""
        if seconds is not None and not self._connection.poll(seconds):
            raise JobFailed(f"no answer within {seconds:g} s")
        message = self._connection.recv()
        if isinstance(message, Failure):
            raise JobFailed(message.what)
        return message


class Worker(Pipe):
    """A process that runs ``job(pipe, *args)``."""

    def __init__(self, process: ForkServerProcess, connection: Connection[Any, Any]) -> None:
        super().__init__(connection)
        self._process = process

    def hear(self, seconds: float | None = ANSWER_SECONDS) -> Any:
        try:
            return super().hear(seconds)
        except EOFError:
            self._process.join(5)
            raise JobFailed(f"its process ended ({self._process.exitcode})") from None

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, message: Any = None, seconds: float = ANSWER_SECONDS) -> Any:
        self.say(message)
        return self.hear(seconds)

    def kill(self) -> None:
        """End it as kill -9 does, and wait until it has ended."""
        self._process.kill()
        self._process.join()


class Crew:
    """Starts workers; on leaving, whatever happened, none is left."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        # What every worker needs is loaded once; workers begin as copies of that process.
        self._context.set_forkserver_preload(["bench.preload"])
        self._workers: list[Worker] = []

    def start(
        self, job: Callable[Concatenate[Pipe, P], None], *args: P.args, **options: P.kwargs
    ) -> Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(
            target=_run, args=(job, there, args, options), name=job.__module__, daemon=True
        )
        process.start()
        there.close()
        worker = Worker(process, here)
        self._workers.append(worker)
        return worker

    def dismiss(self) -> None:
        """Kill all workers."""
        while self._workers:
            self._workers.pop().kill()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *raised: object) -> None:
        self.dismiss()


def _run(
    job: Callable[..., None],
    connection: Connection[Any, Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: killed with the process that started it, even by kill -9.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # Ctrl-C goes to the whole group; the bench ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Some libraries log each failed attempt, or end their threads with an error. What comes of
    # that shows in the figures.
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda _: None
    wire.start_counting()
    pipe = Pipe(connection)
    try:
        job(pipe, *args, **options)
        pipe.hear(None)  # until it is killed
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - any error of a library is an outcome to report
        pipe.say(Failure(f"{type(error).__name__}: {error}"))
