from __future__ import annotations

import getpass
import os
from datetime import datetime, timedelta

import pytest

from django_setnx_lock import LockBusy
from django_setnx_lock.core import Holder, LockInfo, State

# Programs that are not installed here, and holders that nobody can be.
from django_setnx_lock.management.with_lock.child import label_for
from django_setnx_lock.management.wording import holding, user_name

HOLDER = Holder(host="web1", pid=42, label="import", user="ann")


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("backup.sh --password secret", "backup.sh"),
        ("/usr/local/bin/backup.sh secret", "backup.sh"),
        ("sh -c secret", "sh"),
        ("python", "python"),
        ("python script.py secret", "script.py"),
        ("/usr/bin/python3.12 -u /srv/script.py secret", "script.py"),
        ("pypy3 -B -W error -X dev script.py secret", "script.py"),
        ("python -Werror -Xdev script.py", "script.py"),
        ("python -uW error script.py", "script.py"),
        ("python --check-hash-based-pycs always script.py", "script.py"),
        ("python -c secret", "python"),
        ("python -uc secret", "python"),
        ("python -", "python"),
        ("python -m module secret", "module"),
        ("python -Im module secret", "module"),
        ("python -mmodule secret", "module"),
        ("python -m", "python"),
        ("python -W", "python"),
        ("python manage.py import --token secret", "manage.py import"),
        ("./manage.py import secret", "manage.py import"),
        ("manage.py", "manage.py"),
        ("manage.py --settings=secret import", "manage.py"),
        ("django-admin migrate secret", "django-admin migrate"),
        ("python -m django migrate secret", "django migrate"),
        ("pythonic script.py", "pythonic"),
    ],
)
def test_a_label_names_the_program_and_never_its_arguments(command: str, label: str) -> None:
    assert label_for(command.split(" ")) == f"with_lock {label}"


def test_the_user_is_the_one_we_run_as(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")

    assert user_name() == "ann"


@pytest.mark.parametrize("error", [KeyError, OSError, ImportError])
def test_a_user_without_a_name_is_a_number(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)

    assert user_name() == f"uid {os.getuid()}"


def test_a_holder_is_told_with_its_time_and_lease() -> None:
    seen = LockInfo(
        key="k",
        name="lock:k",
        state=State.HELD,
        holder=HOLDER,
        remaining=12.34,
        held_for=7384.0,
        fingerprint="f",
    )
    since = f"{datetime.now().astimezone() - timedelta(seconds=7384):%Y-%m-%d %H:%M}"

    told = holding(LockBusy("", key="k"), seen)

    assert told.startswith(f"held by ann@web1:42 (import) since {since}")
    assert told.endswith(" (2:03:04 ago); its lease runs for another 12.3 s")


@pytest.mark.parametrize(
    "seen", [None, LockInfo(key="k", name="lock:k", state=State.FREE)], ids=["unseen", "free"]
)
def test_a_holder_who_is_gone_at_the_second_look_is_told_of_as_first_seen(
    seen: LockInfo | None,
) -> None:
    busy = LockBusy("", key="k", holder=HOLDER, remaining=3)

    assert holding(busy, seen) == "held by ann@web1:42 (import); its lease runs for another 3.0 s"


def test_a_foreign_holder_without_a_lease_is_told_as_such() -> None:
    assert holding(LockBusy("", key="k"), None) == (
        "held by a foreign program, which left no record of who it is; its lease never ends"
    )
