"""The wheel: what is in it, and that a fresh environment can take a lock with it."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.servers import RealServer

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = "django_setnx_lock"
SOURCES = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", PACKAGE)
SECONDS = 240

TAKE_A_LOCK = """
import json, sys
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django_setnx_lock"],
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}},
)
django.setup()

import redis
import django_setnx_lock

client = redis.Redis.from_url(sys.argv[1])
with django_setnx_lock.lock("packaged:1") as held:
    stored = client.get(held.name).decode()
    seen = {"stored": stored == held.token, "fence": held.fence, "name": held.name}
print(json.dumps({**seen, "left": client.exists(held.name), "from": django_setnx_lock.__file__}))
"""

# One process builds the wheel for all of them.
pytestmark = [
    pytest.mark.timeout(SECONDS),
    pytest.mark.unmeasured,
    pytest.mark.storm,
    pytest.mark.xdist_group("packaging"),
]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)


def pip(*arguments: str | Path) -> None:
    done = run(sys.executable, "-m", "pip", "--quiet", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel of a copy of the checkout, where no earlier build can leave files in it."""
    copy, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)

    pip("wheel", "--no-deps", "--wheel-dir", built, copy)

    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = fnmatch.filter(wheel.namelist(), "*.dist-info/METADATA")
    return message_from_bytes(wheel.read(name))


@pytest.fixture(scope="module")
def fresh_python(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds the wheel and what it asks for, no more.

    Its dependencies have the versions of the environment the tests run in.
    """
    home = tmp_path_factory.mktemp("fresh") / "venv"
    pins = home.with_name("constraints.txt")
    names = ("Django", "django-redis", "redis")
    pins.write_text("".join(f"{name}=={version(name)}\n" for name in names))
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"

    pip("--python", python, "install", "--no-compile", "-c", pins, str(wheel.filename))

    return python


def take_a_lock(
    python: Path, url: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return run(python, "-c", TAKE_A_LOCK, url, cwd=folder, env={**kept, **environment})


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    sources = {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    packed = {name for name in wheel.namelist() if name.startswith(f"{PACKAGE}/")}

    assert packed == sources


def test_the_wheel_holds_the_package_and_nothing_beside_it(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert tops == {PACKAGE, f"{PACKAGE}-{version('django-setnx-lock')}.dist-info"}


def test_the_metadata_say_what_it_asks_for_and_offers(metadata: Message) -> None:
    needed = [one for one in metadata.get_all("Requires-Dist") or [] if "extra ==" not in one]
    links = dict(link.split(", ") for link in metadata.get_all("Project-URL") or [])

    assert needed == ["Django>=5.2", "django-redis>=6"]
    assert metadata.get_all("Provides-Extra") == ["opentelemetry", "prometheus", "testing"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert links["Documentation"].startswith("https://")


def test_a_fresh_environment_takes_a_lock(
    fresh_python: Path, real_server: RealServer, tmp_path: Path
) -> None:
    done = take_a_lock(fresh_python, real_server.url, tmp_path)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert Path(seen["from"]).is_relative_to(fresh_python.parent.parent)
    assert seen["stored"] is True
    assert seen["fence"] > 0
    assert seen["left"] == 0
    with redis.Redis.from_url(real_server.url) as client:
        assert client.exists(seen["name"]) == 0
