"""The pages of the admin in a browser that runs no scripts."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from django_setnx_lock import LockLost, lock
from tests.browser.conftest import CONFIRM, RELEASE, Browser
from tests.support.seams import any_lock

# A second browser: what the pages do otherwise is tested without one.
pytestmark = pytest.mark.matrix


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
    # It is such a browser.
    operator.open("data:text/html,<noscript>off</noscript><script>document.write('on')</script>")
    assert operator.read() == "off"
