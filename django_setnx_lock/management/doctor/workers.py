"""What can be known of the web server of the site, which runs in other processes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_GUNICORN = {
    "-t": "timeout", "--timeout": "timeout", "-w": "workers", "--workers": "workers",
    "--threads": "threads", "-k": "class", "--worker-class": "class",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """Its workers, as far as they are known.

    ``timeout``: after how many seconds a request is ended together with its worker (None: not
    known, or never). ``source`` says who said so. ``count`` and ``threads`` are None when not
    known.
    """

    timeout: float | None = None
    source: str = ""
    count: int | None = None
    threads: int | None = None

    @classmethod
    def known(cls, timeout: float | None, environment: Mapping[str, str]) -> Workers:
        """What ``--worker-timeout`` says, else what servers read from the environment, too."""
        gunicorn = dict(_given(environment.get("GUNICORN_CMD_ARGS", "")))
        threads = _number(gunicorn.get("threads"))
        sources = [("--worker-timeout", timeout)]
        # Other kinds of workers only tell by it that they are alive, whatever a request takes.
        if gunicorn.get("class", "sync") == "sync" and (threads or 1) == 1:
            sources.append(("GUNICORN_CMD_ARGS", _number(gunicorn.get("timeout"))))
        sources.append(("UWSGI_HARAKIRI", _number(environment.get("UWSGI_HARAKIRI"))))
        source, seconds = next(((name, given) for name, given in sources if given), ("", None))
        return cls(
            timeout=seconds,
            source=source,
            count=_number(gunicorn.get("workers") or environment.get("WEB_CONCURRENCY")),
            threads=threads,
        )


def _given(arguments: str) -> Iterator[tuple[str, str]]:
    """The options of gunicorn that matter here: ``-t 60``, ``-t60``, ``--timeout=60``."""
    try:
        words = iter(shlex.split(arguments))
    except ValueError:
        return
    for word in words:
        option, equals, value = word.partition("=")
        if option in _GUNICORN:
            yield _GUNICORN[option], value if equals else next(words, "")
        elif word[:2] in _GUNICORN and not word.startswith("--"):
            yield _GUNICORN[word[:2]], word[2:]


def _number(text: str | None) -> int | None:
    """A whole number, as all of these are."""
    try:
        return int(text or "")
    except ValueError:
        return None
