"""A tour of django-setnx-lock in the terminal, then the shop and its admin on 127.0.0.1:8000."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from subprocess import SubprocessError
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from example_project.shop.models import Order

PORT = 8000


def main() -> int:
    """Return the exit status: 0, or 1 if something did not go as told, or 130 at Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description=__doc__)
    parser.add_argument("--no-serve", action="store_true", help="end after the tour")
    parser.add_argument(
        "--port", type=int, default=PORT, help="where to serve, or the next free one (%(default)s)"
    )
    options = parser.parse_args()
    try:
        # The tour alone needs a port as well, but none that anybody has to know.
        return run(0 if options.no_serve else options.port, serve=not options.no_serve)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C finds us leaving already
        say("\nEnded by Ctrl-C.")
        return 130


def run(port: int, *, serve: bool) -> int:
    """Give the tour of the site on ``port`` or the next free one; serve until Ctrl-C if asked."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    import django

    django.setup()
    from django.db import DatabaseError
    from redis import RedisError

    from example_project.server import ServerError
    from example_project.tour import WentWrong
    from example_project.tour.site import HOST, serving

    # The tour tells what the site answers; the site's own log would say it again.
    logging.getLogger("django").setLevel(logging.ERROR)
    logging.getLogger("django.server").setLevel(logging.ERROR)
    try:
        with serving(port) as found:
            if port not in (0, found):
                say(f"Port {port} is taken, so the site is on port {found}.\n")
            url = f"http://{HOST}:{found}/"
            queued, left = give_tour(url)
            if serve:
                serve_until_interrupted(url, queued, left)
    except ServerError as error:
        return fail(str(error))
    except (WentWrong, RedisError, DatabaseError, OSError, OverflowError, SubprocessError) as error:
        return fail(f"This did not go as told: {error}")
    return 0


def give_tour(url: str) -> list[Order]:
    """Set up, then tell and check each step; return two orders that are left to be paid.

    The lock of the first of them has a history. Raises what the steps raise.
    """
    from example_project.tour.steps import STEPS, describe, set_up

    began = time.monotonic()
    say("django-setnx-lock: a view, a command and the admin share one lock.\n")
    orders = set_up()
    for line in describe(url):
        say(f"   {line}")
    for number, step in enumerate(STEPS, start=1):
        say(f"\n{number}. {step.title}\n")
        # The last steps tell of the lock of one order, and pay none.
        for line in step.run(url, orders.pop(0) if len(orders) > 2 else orders[0]):
            say(f"   {line}" if line else "")
    say(f"\nAll went as told, in {time.monotonic() - began:.1f} s.")
    return orders


def serve_until_interrupted(url: str, queued: Order, order: Order) -> None:
    """Have jobs wait for the lock of ``queued``; say where the site is; return at Ctrl-C."""
    from example_project.tour.jobs import end_all, queue
    from example_project.tour.steps import NOTES, PASSWORD, USERNAME, path_of

    key = f"order:{queued.pk}"
    locks, history = (url + path_of(page)[1:] for page in ("changelist", "all_history"))
    python = sys.executable.removeprefix(f"{os.getcwd()}/")
    # Started before anybody is told how to end it.
    with queue(key, *NOTES) as jobs:
        say(f"""Now it is yours:

   Shop    {url}         pay order {order.number} ten times at once
   Admin   {url}admin/   log in as {USERNAME}, password {PASSWORD}
   Locks   {locks}   jobs that wait for {key}
   Past    {history}   how holds have ended
   Lock    {python} manage.py with_lock order:{order.pk} -- sleep 20

Ctrl-C ends it.
""")
        logging.getLogger("django.server").setLevel(logging.INFO)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one finds us leaving already
            end_all(jobs)  # killed jobs would leave the lock held in a server that goes on
            say("\nEnded.")


def say(line: str) -> None:
    print(line, flush=True)


def fail(line: str) -> int:
    print(f"\n{line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
