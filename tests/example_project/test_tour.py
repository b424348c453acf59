"""What the tour of the demo reads of the commands' output."""

from __future__ import annotations

import os
import threading
from io import StringIO

from django.core.management import call_command

from django_setnx_lock import inspector, lock
from example_project.tour.checks import they_wait, who_wait
from tests.processes import eventually


def wait_for_it() -> None:
    with lock("k", note="invoice"):
        pass


def test_the_tour_finds_who_waits_in_what_show_says() -> None:
    out = StringIO()
    with lock("k"):
        waiter = threading.Thread(target=wait_for_it)
        waiter.start()
        eventually(lambda: inspector().get("lock:k").waiting)
        call_command("locks", "show", "k", stdout=out)
    waiter.join()

    lines = out.getvalue().splitlines()
    assert they_wait(lines, [os.getpid()])
    assert "invoice" in who_wait(lines)[1]
    assert not they_wait(lines[: lines.index(who_wait(lines)[0])], [os.getpid()])
