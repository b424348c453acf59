"""What a run ran on."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import PEERS, version_of

if TYPE_CHECKING:
    from bench.address import Observer
    from bench.report import Results


def describe(observer: Observer, *, tcp: bool, quick: bool) -> Results:
    """Return the beginning of the results: when, where and with which versions."""
    server = observer.client.info("server")
    kind = "Valkey" if "valkey_version" in server else "Redis"
    number = server.get("valkey_version") or server["redis_version"]
    return {
        "when": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "quick": quick,
        "server": f"{kind} {number}",
        "transport": "TCP on 127.0.0.1" if tcp else "unix socket",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "load_at_start": os.getloadavg()[0],
        "hiredis": find_spec("hiredis") is not None,
        "django": version("Django"),
        "redis-py": version("redis"),
        "versions": {name: version_of(name) for name in PEERS},
    }


def processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
