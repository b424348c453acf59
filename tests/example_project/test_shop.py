from __future__ import annotations

import io
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from django_setnx_lock import inspector, lock
from example_project.shop import payments
from example_project.shop.models import Order
from example_project.tour.browser import Answer, Browser
from example_project.tour.checks import they_wait, who_wait
from tests.processes import eventually

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

    from tests.servers import RealServer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.urls")]

JSON = {"accept": "application/json"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the payment provider answer at once."""
    monkeypatch.setattr(payments, "await_answer", lambda: None)


@pytest.fixture
def order() -> Order:
    order = Order(number="1001", customer="Ada", amount=42)
    order.save()
    return order


def charges(order: Order) -> int:
    return order.charges.count()


def test_a_payment_charges_once_and_notes_who_paid(order: Order, admin_client: Client) -> None:
    answer = admin_client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    order.refresh_from_db()
    assert (answer.status_code, answer.json()) == (200, {"detail": "Order 1001 is paid."})
    assert order.paid_by == "admin"
    assert order.paid_at is not None
    assert charges(order) == 1


def test_a_paid_order_is_not_charged_again(order: Order, client: Client) -> None:
    client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    answer = client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    assert (answer.status_code, answer.json()) == (409, {"detail": "Order 1001 was paid before."})
    assert "Retry-After" not in answer.headers
    assert charges(order) == 1


def test_a_refunded_order_can_be_paid_again(order: Order, client: Client) -> None:
    client.post(f"/orders/{order.pk}/pay/")

    client.post(f"/orders/{order.pk}/refund/")

    order.refresh_from_db()
    assert order.paid_at is None
    assert charges(order) == 0


@pytest.mark.parametrize("change", ["pay", "refund"])
def test_a_busy_order_is_left_alone(order: Order, client: Client, change: str) -> None:
    with lock(f"order:{order.pk}", timeout=30):
        answer = client.post(f"/orders/{order.pk}/{change}/", headers=JSON)

    assert answer.status_code == 409
    assert 1 <= int(answer.headers["Retry-After"]) <= 30
    assert charges(order) == 0


def test_an_order_that_is_not_there_cannot_be_paid(client: Client) -> None:
    assert client.post("/orders/4711/pay/", headers=JSON).status_code == 404


def test_a_look_at_the_payment_address_takes_no_lock(order: Order, client: Client) -> None:
    with lock(f"order:{order.pk}"):
        answer = client.get(f"/orders/{order.pk}/pay/")

    assert answer.status_code == 405


def test_the_form_on_the_front_page_pays_and_comes_back(order: Order) -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.get("/").content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert token is not None

    answer = client.post(f"/orders/{order.pk}/pay/", {"csrfmiddlewaretoken": token[1]}, follow=True)

    assert answer.redirect_chain == [("/", 302)]
    assert [str(one) for one in get_messages(answer.wsgi_request)] == ["Order 1001 is paid."]
    assert "charged once" in answer.content.decode()
    assert charges(order) == 1


def test_the_front_page_shows_a_double_charge(order: Order, client: Client) -> None:
    Order.objects.update(paid_at=timezone.now())
    for _ in range(2):
        order.charges.create(amount=order.amount)

    page = client.get("/").content.decode()

    assert "charged 2 times" in page


def wait_for_it() -> None:
    with lock("k", note="invoice"):
        pass


def test_the_tour_finds_who_waits_in_what_show_says() -> None:
    out = io.StringIO()
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


def act(client: Client, action: str, orders: list[Order], **fields: str) -> Any:
    chosen = {"action": action, "_selected_action": [one.pk for one in orders], **fields}
    return client.post("/admin/shop/order/", chosen)


def test_an_order_that_is_being_paid_is_not_marked_as_paid(
    order: Order, admin_client: Client
) -> None:
    other = Order.objects.create(number="1002", customer="Ada", amount=42)
    with lock(f"order:{order.pk}", label="view pay"):
        answer = act(admin_client, "mark_paid", [order, other])

    said = [str(one) for one in get_messages(answer.wsgi_request)]
    assert said[0] == "1 order marked as paid."
    assert said[1].startswith("1 order was skipped: Order 1001")
    assert "view pay" in said[1]
    assert [one.paid_by for one in Order.objects.all()] == ["", "invoice, admin"]


def test_the_lock_of_a_selected_order_can_be_released(order: Order, admin_client: Client) -> None:
    held, action = lock(f"order:{order.pk}").take(0), "release_locks_of_selected"

    question = act(admin_client, action, [order])
    act(admin_client, action, [order], post="yes", seen=question.context["seen"])

    assert not held.owned()


def test_an_empty_shop_says_how_to_get_orders(client: Client) -> None:
    page = client.get("/").content.decode()

    assert "import_orders" in page


@pytest.mark.parametrize("change", ["pay", "refund"])
def test_what_a_later_holder_has_written_stands(
    order: Order, client: Client, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    if change == "refund":
        client.post(f"/orders/{order.pk}/pay/")
    before = charges(order)

    def be_overtaken() -> None:
        Order.objects.filter(pk=order.pk).update(fence=2**62, paid_by="later")

    if change == "refund":
        be_overtaken()
    monkeypatch.setattr(payments, "await_answer", be_overtaken)

    answer = client.post(f"/orders/{order.pk}/{change}/", headers=JSON)

    order.refresh_from_db()
    assert answer.status_code == 503
    assert "Retry-After" not in answer.headers
    assert order.paid_by == "later"
    assert (order.paid_at is None) == (change == "pay")
    assert charges(order) == before


def test_the_counter_pays_once(order: Order) -> None:
    said = io.StringIO()

    call_command("pay_order", str(order.pk), stdout=said)

    assert said.getvalue().endswith("Order 1001 is paid.\n")
    assert charges(order) == 1
    with pytest.raises(CommandError, match="was paid before"):
        call_command("pay_order", str(order.pk), stdout=said)


@pytest.mark.parametrize(
    ("number", "why"), [("1001", "refused: nothing of"), ("4711", "does not exist")]
)
def test_the_counter_says_why_it_cannot_pay(order: Order, number: str, why: str) -> None:
    # As a later holder has written.
    Order.objects.update(fence=2**62)
    pk = str(order.pk) if number == order.number else number

    with pytest.raises(CommandError, match=why):
        call_command("pay_order", pk, stdout=io.StringIO())

    assert charges(order) == 0


def test_a_clerk_holds_both_orders(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))

    call_command("hold_both", str(order.pk), "4711", stdout=said)

    assert said.getvalue().endswith(f"has order:{order.pk} and order:4711\n")


@pytest.mark.django_db(transaction=True)
def test_of_twenty_payments_at_once_one_is_made(
    order: Order,
    live_server: LiveServer,
    real_cache: RealServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_others_were_answered = threading.Event()
    monkeypatch.setattr(payments, "await_answer", lambda: all_others_were_answered.wait(30))
    answers: list[Answer] = []
    visitors = [Browser(live_server.url) for _ in range(20)]
    for visitor in visitors:
        visitor.open("/")

    with ThreadPoolExecutor(20) as threads:
        jobs = [threads.submit(one.post, f"/orders/{order.pk}/pay/") for one in visitors]
        for job in as_completed(jobs):
            answers.append(job.result())
            if len(answers) == 19:
                all_others_were_answered.set()

    assert [one.status for one in answers] == [409] * 19 + [200]
    assert {one.retry_after for one in answers[:19]} <= {str(n) for n in range(1, 11)}
    assert charges(order) == 1
    assert not real_cache.client().exists(f"lock:order:{order.pk}")
