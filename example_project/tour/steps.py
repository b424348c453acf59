"""The tour: what it sets up, and its steps.

Each step yields the lines it tells, and raises WentWrong if something did not go as told.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.urls import reverse

from django_setnx_lock import lock
from example_project.shop import importing
from example_project.shop.models import Charge, Order
from example_project.tour import checks
from example_project.tour.browser import Answer, Browser, Page
from example_project.tour.jobs import LEASE, PATIENCE, Clerk, Counter, Job, end_all, manage, queue

NOTES = ("packing list", "invoice", "label")  # of the jobs of a queue
REASON = "it hangs"
SAMPLE_ORDERS = Path(importing.__file__).with_name("sample_orders.csv")
USERNAME = "admin"
CLERK = "clerk"
PASSWORD = "demo"  # noqa: S105 - public, for a site that only this machine can reach


def set_up() -> list[Order]:
    """Return the sample orders, all unpaid; what else is in the database stays as it is."""
    call_command("migrate", verbosity=0, interactive=False)
    call_command("import_orders", SAMPLE_ORDERS, stdout=StringIO())
    samples = Order.objects.filter(number__in=importing.read(SAMPLE_ORDERS))
    Charge.objects.filter(order__in=samples).delete()
    samples.update(paid_at=None, paid_by="")
    for username in (USERNAME, CLERK):
        _make_admin(username)
    return list(samples)


def describe(url: str) -> Iterator[str]:
    """Yield what there is: the site, the server behind the locks, the database."""
    server = lock("any").client.info("server")
    kind = server.get("server_name", "redis").capitalize()
    version = server.get("valkey_version") or server["redis_version"]
    whose = "from REDIS_URL" if os.environ.get("REDIS_URL") else "embedded"
    name = os.path.relpath(settings.DATABASES["default"]["NAME"])
    yield f"site       {url}"
    yield f"locks      {kind} {version} ({whose})"
    yield f"database   {name}, with {Order.objects.count()} orders"


def _make_admin(username: str) -> None:
    rights = {"is_staff": True, "is_superuser": True, "is_active": True}
    user, _ = get_user_model().objects.update_or_create(username=username, defaults=rights)
    if not user.check_password(PASSWORD):  # else whoever is logged in stays so
        user.set_password(PASSWORD)
        user.save()


class Step(NamedTuple):
    title: str
    run: Callable[[str, Order], Iterator[str]]


def two_payments(site: str, order: Order) -> Iterator[str]:
    """Pay ``order`` twice at once."""
    yield 'The view that pays an order is decorated with @redis_lock("order:<pk>").'
    yield ""
    visitors = [_visitor(site), _visitor(site)]
    start = threading.Barrier(len(visitors), timeout=10)

    def pay(visitor: Browser) -> Answer:
        start.wait()
        return _pay(visitor, order)

    with ThreadPoolExecutor(len(visitors)) as threads:
        answers = list(threads.map(pay, visitors))
    for answer in answers:
        yield _line(answer)
    times_charged = order.charges.count()
    checks.one_paid_one_waits(answers, times_charged)
    yield ""
    yield "One got the lock, one was told when to come back. The customer was charged once."


def a_job(site: str, order: Order) -> Iterator[str]:
    """Pay ``order`` while a job has its lock, and again when the job has ended."""
    visitor = _visitor(site)
    with Job(f"order:{order.pk}") as job:
        yield "A job takes the same lock from the command line; cat stands for any program:"
        yield ""
        yield f"$ {job.line}"
        job.wait_until_it_runs()
        meanwhile = _pay(visitor, order)
        yield _line(meanwhile)
        checks.is_busy(meanwhile)
        checks.job_ended_well(job.end())
    yield "(the job ends, with its input)"
    afterwards = _pay(visitor, order)
    yield _line(afterwards)
    checks.is_paid(afterwards)
    yield ""
    yield "While the job ran, nobody could pay the order. When it ended, the lock was free."


def a_killed_holder(site: str, order: Order) -> Iterator[str]:
    """Kill a job that has the lock of ``order``: its command dies with it, and its lock stays.

    Then free the lock on the admin page.
    """
    key = f"order:{order.pk}"
    visitor = _visitor(site)
    with Job(key, "--note", "nightly correction") as job:
        yield f"$ {job.line} &"
        job.wait_until_it_runs()
        orphaned = job.kill()
    yield f"$ kill -9 {job.pid}"
    checks.no_orphan(orphaned)
    yield f"(with_lock is dead, and the orphan was killed {orphaned * 1000:.0f} ms later: its cat)"
    yield ""
    meanwhile = _pay(visitor, order)
    yield _line(meanwhile)
    checks.is_busy(meanwhile)
    yield ""
    yield "The dead job could not let go, and its lease runs on. An operator need not wait:"
    yield ""
    operator, page = _log_in(site, path_of("changelist"))
    _, state, holder, held_for, lease_left, *_ = checks.row_of_holder(page, key, job.pid)
    yield f"GET  {page.path}"
    yield f"     {key} is {state} by {holder}"
    yield f"     held for {held_for}, lease left {lease_left}"
    confirmation = operator.submit(operator.follow(page, key), "_selected_action", to="/release/")
    checks.names_holder(confirmation, job.pid)
    yield f"POST {confirmation.path}"
    yield "     names the holder and asks: are you sure?"
    done = operator.submit(confirmation, "reason", reason="the job was killed")
    checks.is_released(done, key)
    yield f"POST {confirmation.path}"
    yield "     released, and logged with the reason"
    yield ""
    afterwards = _pay(visitor, order)
    yield _line(afterwards)
    checks.is_paid(afterwards)


def a_late_holder(site: str, order: Order) -> Iterator[str]:
    """Stop a payment of ``order`` until its lease is over, pay elsewhere, and let it go on."""
    visitor = _visitor(site)
    with Counter(order.pk) as counter:
        yield f"$ {counter.line} &"
        yield counter.stop()
        yield f"$ kill -STOP {counter.pid}"
        meanwhile = _pay(visitor, order)
        yield _line(meanwhile)
        checks.is_busy(meanwhile)
        yield ""
        yield "It can neither renew its lease nor know that it ends. The next has the lock then:"
        yield ""
        time.sleep(LEASE)
        afterwards = _pay(visitor, order)
        yield _line(afterwards)
        checks.is_paid(afterwards)
        yield f"$ kill -CONT {counter.pid}"
        status, said = counter.go_on()
        yield said
    order.refresh_from_db()
    checks.is_refused(status, said, order.paid_by, order.charges.count())
    yield ""
    yield "The stale write was refused by the database: its fence is smaller than the stored one."


def two_people(site: str, order: Order) -> Iterator[str]:
    """Have two people open ``order`` in the admin; the first saves it, and then the second."""
    form, was = reverse("admin:shop_order_change", args=[order.pk]), order.customer
    admin, first = _log_in(site, form)
    checks.may_edit(first, was)
    yield f"GET  {form}   {USERNAME} may edit it, and has its lock"
    clerk, second = _log_in(site, form, CLERK)
    yield f"GET  {form}   {CLERK} may not: {checks.reads_only(second, USERNAME)}"
    meanwhile = _pay(_visitor(site), order)
    yield _line(meanwhile)
    checks.is_busy(meanwhile)
    changed = f"{was} jr."
    checks.is_saved(admin.submit(first, "customer", customer=changed, _save="Save"))
    yield f"POST {form}   {USERNAME} saves {changed!r}"
    third = clerk.open(form)
    checks.may_edit(third, changed)
    yield f"GET  {form}   {CLERK} reads that, and may edit it now"
    checks.is_saved(clerk.submit(third, "customer", customer=was, _save="Save"))
    yield f"POST {form}   {CLERK} saves {was!r}"
    yield ""
    yield "An open form holds the lock that the view takes. Neither overwrote what the other wrote."


def a_queue(site: str, order: Order) -> Iterator[str]:
    """Have jobs wait for the lock of ``order``; look who they are; take it from its holder."""
    key = f"order:{order.pk}"
    with queue(key, *NOTES) as jobs:
        for job in jobs:
            yield f"$ {job.line} &"
        pids = [job.pid for job in jobs[1:]]
        deadline = time.monotonic() + PATIENCE
        show = ("locks", "show", key)
        # A job says that it waits just before it is in the queue, so the queue has to be asked.
        while not checks.they_wait(seen := manage(*show), pids) and time.monotonic() < deadline:
            pass
        checks.all_wait(seen, pids)
        yield from ("", "Who waits, in which order, is known by name:", "")
        yield from _said(show, checks.who_wait(seen))
        yield from (
            "",
            "An operator takes the lock from its holder. The others get it in turn:",
            "",
        )
        release = ("locks", "release", key, "--yes", "--reason", REASON)
        yield from _said(release, manage(*release))
        checks.one_was_lost_and_the_rest_ran(end_all(jobs))
    yield "(all jobs end, with their input; the first with status 76, as it has lost the lock)"


def a_deadlock(site: str, order: Order) -> Iterator[str]:
    """Have two clerks take the locks of ``order`` and another one, each in its own order."""
    other = Order.objects.exclude(pk=order.pk)[0]
    with Clerk(order.pk, other.pk) as one, Clerk(other.pk, order.pk) as two:
        clerks = [one, two]
        for clerk in clerks:
            yield f"$ {clerk.line} &"
            yield f"{clerk.pid} {clerk.wait_until_it_has_one()}"
        yield from ("", "Now each takes the lock that the other one has:", "")
        with ThreadPoolExecutor(len(clerks)) as threads:
            ends = list(threads.map(Clerk.go_on, clerks))
        checks.one_was_refused(ends, [clerk.pid for clerk in clerks])
        # The one that was refused let go first.
        for clerk, (_, said) in sorted(zip(clerks, ends, strict=True), key=lambda end: -end[1][0]):
            yield f"{clerk.pid} {said[0]}"
            yield from said[1:]
    yield ""
    yield "One got LockDeadlock and let go of its lock. The other went on."


def a_history(site: str, order: Order) -> Iterator[str]:
    """Tell how the last holds of the lock of ``order`` have ended."""
    key = f"order:{order.pk}"
    history = ("locks", "history", key, "--limit", "5")
    said = manage(*history)
    yield from _said(history, said)
    checks.tells_the_forced_end(said, key, REASON)
    yield ""
    yield "It has the holds that did not end by a release, and those that took long."


STEPS = (
    Step("Two payments of one order at once", two_payments),
    Step("A job that excludes the view", a_job),
    Step("A holder that was killed", a_killed_holder),
    Step("A holder that comes too late", a_late_holder),
    Step("Two people at one form", two_people),
    Step("A queue", a_queue),
    Step("A deadlock", a_deadlock),
    Step("How the last holds have ended", a_history),
)


def _visitor(site: str) -> Browser:
    """Return a visitor who has the front page open, and so a cookie to post with."""
    visitor = Browser(site)
    visitor.open("/")
    return visitor


def _pay(visitor: Browser, order: Order) -> Answer:
    return visitor.post(reverse("shop:pay", args=[order.pk]))


def _said(command: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    yield f"$ {shlex.join(('python', 'manage.py', *command))}"
    yield from lines


def _log_in(site: str, address: str, username: str = USERNAME) -> tuple[Browser, Page]:
    """Return somebody who has logged in to see the page at ``address``, and that page."""
    browser = Browser(site)
    login = browser.open(address)
    return browser, browser.submit(login, "username", username=username, password=PASSWORD)


def path_of(page: str, *args: str) -> str:
    return reverse(f"admin:django_setnx_lock_lock_{page}", args=args)


def _line(answer: Answer) -> str:
    note = f"Retry-After: {answer.retry_after} s" if answer.retry_after else answer.detail
    return f"POST {answer.path}   {answer.status}   {answer.seconds:.2f} s   {note}"
