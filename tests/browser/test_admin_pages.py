from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import LogEntry

from django_setnx_lock import LockLost, lock
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from tests.browser.conftest import Browser

pytestmark = [
    pytest.mark.browser,
    # A second browser, without scripts: what the pages do otherwise is tested without one.
    pytest.mark.matrix,
    pytest.mark.django_db(transaction=True),
    # A browser takes seconds to start where the machine is busy.
    pytest.mark.timeout(180),
    # One process starts the browsers: side by side they keep everybody else waiting.
    pytest.mark.xdist_group("browser"),
]
RELEASE = ".lock-release input[type=submit]"
CONFIRM = "#content form input[type=submit]"


def test_this_browser_runs_no_scripts(browser: Browser) -> None:
    browser.open("data:text/html,<noscript>off</noscript><script>document.write('on')</script>")

    assert browser.read() == "off"


def test_an_operator_finds_a_stuck_lock_and_releases_it(operator: Browser) -> None:
    stuck = any_lock("import:orders", timeout=3600, label="nightly import", user="ann").take(0)
    other = lock("order:42", timeout=3600).take(0)

    operator.follow("Locks")
    operator.write("q", "import")
    operator.click("#changelist-search input[type=submit]")
    found = operator.read("#result_list")
    operator.follow("import:orders")
    operator.click(RELEASE)
    question = operator.read("#content")
    operator.write("reason", "its host was rebooted")
    operator.click(CONFIRM)

    assert "order:42" not in found
    assert "nightly import" in question
    assert "their programs go on" in question
    assert "Released, but not stopped: import:orders, ann@" in operator.read(".messagelist")
    with pytest.raises(LockLost, match="force-released by admin: its host was rebooted"):
        stuck.check()
    assert other.owned()
    assert "its host was rebooted" in LogEntry.objects.get().get_change_message()


@pytest.mark.parametrize("looked_at", ["the lock", "the question"])
def test_a_lock_that_changed_hands_meanwhile_is_not_released(
    operator: Browser, looked_at: str
) -> None:
    first = any_lock("import:orders", timeout=3600, user="ann").take(0)

    operator.follow("Locks")
    operator.follow("import:orders")
    if looked_at == "the question":
        operator.click(RELEASE)
    first.release()
    second = any_lock("import:orders", timeout=3600, user="bob").take(0)
    operator.click(CONFIRM if looked_at == "the question" else RELEASE)

    assert "hanged hands" in operator.read(".messagelist")
    assert "bob" in operator.read("#content")
    assert second.owned()
    assert not LogEntry.objects.exists()


def test_one_of_several_who_read_is_released(operator: Browser) -> None:
    stuck, other = (
        any_lock("report", shared=True, reentrant=False, timeout=3600 + number, user=user).take(0)
        for number, user in enumerate(("ann", "bob"))
    )

    operator.follow("Locks")
    found = operator.read("#result_list")
    operator.follow("report")
    operator.click(".lock-shares " + RELEASE)
    question = operator.read("#content")
    operator.click(CONFIRM)

    assert "ann@" in found
    assert "bob@" in found
    assert "ann@" in question
    assert "bob@" not in question
    assert (stuck.owned(), other.owned()) == (False, True)
