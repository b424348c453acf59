"""A Django project of its own, in which what stands on a page of the docs runs as a user's does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.servers import RealServer

ROOT = Path(__file__).parents[2]
SETTINGS = """
import os

URL = os.environ["TEST_SERVER_URL"]
SECRET_KEY = "only for this"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "rows.sqlite3"}}
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}}
INSTALLED_APPS = ["django_setnx_lock", "django.contrib.contenttypes", *os.environ["APPS"].split()]
"""


class Project:
    """The project in ``folder``, whose cache is on ``server``; ``apps`` are further ones.

    ``settings`` come behind SETTINGS. Programs run with the project as their directory, each in a
    session of its own.
    """

    def __init__(
        self, folder: Path, server: RealServer, apps: str = "", settings: str = ""
    ) -> None:
        self.folder, self.url = folder, server.url
        self._environment = {
            **os.environ,
            "APPS": apps,
            "DJANGO_SETTINGS_MODULE": "project_settings",
            "PYTHONPATH": f"{folder}:{ROOT}",
            "TEST_SERVER_URL": server.url,
        }
        self.write("project_settings.py", SETTINGS + settings)

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def start(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Start ``command``, of which ``python`` is this one, with these environment variables."""
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [sys.executable if word == "python" else word for word in command],
            cwd=self.folder,
            env={**self._environment, **variables},
            text=True,
            start_new_session=True,
            **options,
        )

    def found(self, *arguments: str, **variables: str) -> str:
        """Run Python with ``arguments``; return what its line ``found …`` says."""
        with self.start("python", *arguments, **variables) as process:
            try:
                said, errors = process.communicate(timeout=50)
            except BaseException:
                # What it has started, too.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        found = [line for line in said.splitlines() if line.startswith("found ")]
        assert found, errors
        return found[0].removeprefix("found ")
