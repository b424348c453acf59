from __future__ import annotations

import inspect
import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import include, path, reverse
from django.utils import timezone

from django_setnx_lock import lock
from example_project.shop import payments, urls
from example_project.shop.models import Order
from example_project.tour.browser import Answer, Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.live_server_helper import LiveServer

    from tests.servers import RealServer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.urls")]

JSON = {"accept": "application/json"}


def without_lock(view: Any) -> Any:
    """Return a view of the shop that takes no lock, and has a fence all the same."""

    def unlocked(request: Any, **kwargs: Any) -> Any:
        request.lock = 1
        return inspect.unwrap(view)(request, **kwargs)

    return unlocked


# This module as an URLconf has the shop without its locks.
unlocked = [
    path(str(one.pattern), without_lock(one.callback), name=one.name) for one in urls.urlpatterns
]
urlpatterns = [path("", include((unlocked, "shop"))), path("admin/", admin.site.urls)]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the payment provider answer at once."""
    monkeypatch.setattr(payments, "await_answer", lambda: None)


@pytest.fixture
def order() -> Order:
    order = Order(number="1001", customer="Ada", amount=42)
    order.save()
    return order


def charges(order: Order) -> int:
    return order.charges.count()


@pytest.mark.usefixtures("at_once")
def test_a_payment_charges_once_and_notes_who_paid(order: Order, admin_client: Client) -> None:
    answer = admin_client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    order.refresh_from_db()
    assert (answer.status_code, answer.json()) == (200, {"detail": "Order 1001 is paid."})
    assert order.paid_by == "admin"
    assert order.paid_at is not None
    assert charges(order) == 1


@pytest.mark.usefixtures("at_once")
def test_a_paid_order_is_not_charged_again(order: Order, client: Client) -> None:
    client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    answer = client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    assert (answer.status_code, answer.json()) == (409, {"detail": "Order 1001 was paid before."})
    assert "Retry-After" not in answer.headers
    assert charges(order) == 1


@pytest.mark.usefixtures("at_once")
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


@pytest.mark.usefixtures("at_once")
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


def test_an_empty_shop_says_how_to_get_orders(client: Client) -> None:
    page = client.get("/").content.decode()

    assert "import_orders" in page


@pytest.mark.usefixtures("at_once")
def test_an_order_that_a_later_holder_has_written_is_neither_charged_nor_paid(
    order: Order, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_overtaken() -> None:
        Order.objects.filter(pk=order.pk).update(fence=2**62, paid_by="later")

    monkeypatch.setattr(payments, "await_answer", be_overtaken)

    answer = client.post(f"/orders/{order.pk}/pay/", headers=JSON)

    order.refresh_from_db()
    assert answer.status_code == 503
    assert "Retry-After" not in answer.headers
    assert (order.paid_by, order.paid_at) == ("later", None)
    assert charges(order) == 0


@pytest.mark.usefixtures("at_once")
def test_an_order_that_a_later_holder_has_written_is_not_refunded(
    order: Order, client: Client
) -> None:
    client.post(f"/orders/{order.pk}/pay/")
    Order.objects.update(fence=2**62)

    answer = client.post(f"/orders/{order.pk}/refund/", headers=JSON)

    assert answer.status_code == 503
    assert charges(order) == 1


@pytest.mark.usefixtures("at_once")
def test_the_counter_pays_once(order: Order) -> None:
    said = io.StringIO()

    call_command("pay_order", str(order.pk), stdout=said)

    assert said.getvalue().endswith("Order 1001 is paid.\n")
    assert charges(order) == 1
    with pytest.raises(CommandError, match="was paid before"):
        call_command("pay_order", str(order.pk), stdout=said)


@pytest.mark.usefixtures("at_once")
def test_the_counter_is_refused_what_a_later_holder_has_written(order: Order) -> None:
    Order.objects.update(fence=2**62)

    with pytest.raises(CommandError, match="refused: nothing of"):
        call_command("pay_order", str(order.pk), stdout=io.StringIO())

    assert charges(order) == 0


def test_the_counter_says_why_it_cannot_pay(order: Order) -> None:
    with pytest.raises(CommandError, match="does not exist"):
        call_command("pay_order", "4711", stdout=io.StringIO())


def test_a_clerk_holds_both_orders(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))

    call_command("hold_both", str(order.pk), "4711", stdout=said)

    assert said.getvalue().endswith(f"has order:{order.pk} and order:4711\n")


def pay_at_once(site: str, order: Order, times: int) -> Iterator[Answer]:
    """Pay the order so many times at once; yield the answers as they come."""
    visitors = [Browser(site) for _ in range(times)]
    for visitor in visitors:
        visitor.open("/")
    address = reverse("shop:pay", args=[order.pk])
    with ThreadPoolExecutor(times) as threads:
        for done in as_completed([threads.submit(one.post, address) for one in visitors]):
            yield done.result()


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

    for answer in pay_at_once(live_server.url, order, 20):
        answers.append(answer)
        if len(answers) == 19:
            all_others_were_answered.set()

    assert [one.status for one in answers] == [409] * 19 + [200]
    assert {one.retry_after for one in answers[:19]} <= {str(n) for n in range(1, 11)}
    assert charges(order) == 1
    assert not real_cache.client().exists(f"lock:order:{order.pk}")


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls("tests.example_project.test_shop")
def test_without_the_lock_two_payments_at_once_are_both_made(
    order: Order, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_are_paying = threading.Barrier(2, timeout=30)
    monkeypatch.setattr(payments, "await_answer", both_are_paying.wait)

    answers = list(pay_at_once(live_server.url, order, 2))

    assert [one.status for one in answers] == [200, 200]
    assert charges(order) == 2
