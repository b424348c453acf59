"""A command under with_lock that takes the same key goes on with its parent's lock."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.management.conftest import CHECKOUT, COMMAND, Program
from tests.servers import RealServer

Run = Callable[..., tuple[int, str, str]]

PREPARE = "import django; django.setup(); from django_setnx_lock import lock\n"
TAKES = f"{PREPARE}print(lock('k', blocking_timeout=0, reentrant=True).take().fence)"
PYTHON = (sys.executable, "-c")


@pytest.fixture(autouse=True)
def reentrant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setenv("TEST_REENTRANT", "1")


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param((*PYTHON, TAKES), id="code"),
        pytest.param((*COMMAND, "other", "--", *PYTHON, TAKES), id="code under two locks"),
        pytest.param((*COMMAND, "-n", "k", "sh", "-c", "echo $SETNX_LOCK_FENCE"), id="with_lock"),
    ],
)
def test_it_goes_on_with_the_lock(
    run: Run, real_server: RealServer, inner: tuple[str, ...]
) -> None:
    status, out, err = run("k", "--", *inner)

    assert (status, err) == (0, "")
    assert int(out) > 0
    assert not real_server.client().exists("lock:k")


def test_the_lock_stays_when_the_inner_one_has_ended(
    start: Callable[..., Program], real_server: RealServer
) -> None:
    inner = " ".join([*COMMAND, "-n", "k", "true"])
    with_lock = start("k", "--", "sh", "-c", f"{inner}; echo done; read wait", stdin=-1)

    said = with_lock.line()

    assert said == "done"
    assert real_server.client().exists("lock:k")
    with_lock.communicate("\n", timeout=20)
