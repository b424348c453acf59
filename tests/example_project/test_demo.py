from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from example_project.tour.browser import Browser
from tests.processes import eventually
from tests.servers import free_port

if TYPE_CHECKING:
    from tests.example_project.conftest import Checkout

# Each takes the whole tour, or much of it, as does `make demo`.
pytestmark = [pytest.mark.storm, pytest.mark.timeout(200)]

# Seconds; it starts dozens of programs.
TOUR = 150
DEMO = ("-W", "error", "-m", "example_project.demo")


@pytest.fixture
def demo(checkout: Checkout) -> Checkout:
    """Give a copy of the project, and of coreutils only what the tour's jobs run."""
    cat = shutil.which("cat")
    assert cat is not None
    (checkout.server.parent / "cat").symlink_to(cat)
    return checkout


def said_until(process: subprocess.Popen[str], text: str) -> str:
    """Read what the process says up to the line with that text."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    pytest.fail(f"the demo ended with status {process.wait()}:\n{said}")


def test_the_tour_ends_with_status_0_and_leaves_nothing(demo: Checkout) -> None:
    process = demo.run(*DEMO, "--no-serve", stdout=subprocess.PIPE)

    said, _ = process.communicate(timeout=TOUR)

    assert process.returncode == 0, said
    answers = re.findall(r"POST /orders/(\d)/pay/ +(\d+) ", said)
    assert sorted(answers[:2]) == [("1", "200"), ("1", "409")]
    one_by_one = [(order, status) for order in "234" for status in ("409", "200")]
    assert answers[2:] == [*one_by_one, ("5", "409")]
    assert "clerk may not: admin is working on this order (since " in said
    assert "clerk saves 'Edsger Dijkstra'" in said
    assert re.search(r"the orphan was killed \d+ ms later", said)
    assert "order:3 is held by " in said
    assert "CommandError: refused: nothing of shop.Order 4 was written" in said
    assert "The stale write was refused" in said
    waiting = re.findall(r"\n +\S+:\d+ \(with_lock cat; (invoice|label)\) +\d{4}-", said)
    assert sorted(waiting) == ["invoice", "label"]
    cycle = re.findall(r":(\d+) \(hold_both\) holds '(order:\d)' and waits for '(order:\d)'", said)
    (refused, held, wanted), (other, *crosswise) = cycle
    assert crosswise == [wanted, held]
    assert f"{refused} CommandError: a deadlock, so {held} is let go:" in said
    assert f"{other} has {wanted} and {held}" in said
    assert re.search(r"order:5  forced by \S+: it hangs ", said)
    assert demo.starts == 1
    eventually(demo.is_gone)


UNLOCKED = "lambda view: lambda request, pk: (setattr(request, 'lock', 1), view(request, pk))[1]"


@pytest.mark.parametrize(
    ("module", "changes", "said"),
    [
        (
            "shop/views.py",
            {"@redis_lock(": f"@(lambda *a, **k: {UNLOCKED})("},
            "expected one 200 and one 409, but got 200 and 200$",
        ),
        (
            "shop/payments.py",
            {", fence=fence)": ")"},
            "expected the late payment to be refused.*charged 2 times",
        ),
        (
            "shop/admin.py",
            {"(LockedAdminMixin, ": "(", ', "edited_by"': ""},
            "expected a form that admin has open",
        ),
        (
            "settings.py",
            {'{"CACHE": "locks"}': '{"CACHE": "locks", "BLOCKING_TIMEOUT": 0.5}'},
            "to be refused, with the deadlock of both",
        ),
    ],
    ids=["no lock", "no fence", "no lock of a form", "no deadlock"],
)
def test_the_tour_fails_without_what_it_shows(
    demo: Checkout, module: str, changes: dict[str, str], said: str
) -> None:
    file = demo.directory / "example_project" / module
    for old, new in changes.items():
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    process = demo.run(*DEMO, "--no-serve", stdout=subprocess.PIPE)
    told, _ = process.communicate(timeout=TOUR)

    assert process.returncode == 1
    assert re.search(rf"^This did not go as told: .*{said}", told.splitlines()[-1])
    eventually(demo.is_gone)


def test_the_site_is_on_the_next_free_port_and_ends_with_ctrl_c(demo: Checkout) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        process = demo.run(*DEMO, "--port", str(port), stdout=subprocess.PIPE)
        said = said_until(process, "Ctrl-C ends it.")
    url = re.search(r"Shop +(http://127.0.0.1:(\d+)/)", said)
    assert url is not None

    visitor = Browser(url[1])
    page = visitor.open("/")
    locks = re.search(r"Locks +(\S+) +jobs that wait for order:5", said)
    history = re.search(r"Past +(\S+) ", said)
    assert locks is not None
    assert history is not None
    login = visitor.open(locks[1])
    visitor.submit(login, "username", username="admin", password="demo")
    eventually(lambda: "packing list" in visitor.open(locks[1]).text)
    ended = visitor.open(history[1])
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=10)

    assert said.startswith(f"Port {port} is taken, so the site is on port {url[2]}.")
    assert "Ada Lovelace" in page.text
    assert "it hangs" in ended.text
    assert "Traceback" not in rest
    # A thread of the site may write its line of the request after that.
    assert "Ended.\n" in rest
    assert process.returncode == 0
    eventually(demo.is_gone)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_demo_that_is_interrupted_or_killed_leaves_no_job_and_no_server(
    demo: Checkout, number: signal.Signals, status: int
) -> None:
    process = demo.run(*DEMO, "--no-serve", stdout=subprocess.PIPE)
    said_until(process, "with_lock order:2")

    # Ctrl-C reaches its programs, too.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    rest = "" if number == signal.SIGKILL else process.communicate(timeout=20)[0]

    assert process.wait(timeout=10) == status
    assert "Traceback" not in rest
    eventually(demo.is_gone)
