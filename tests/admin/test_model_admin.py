"""Two people at one form of the admin: who may save, who is told what, and what is not lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_redis.cache import RedisCache
from django_redis.exceptions import ConnectionInterrupted

from django_setnx_lock import inspector, lock
from django_setnx_lock.admin import LockedAdminMixin
from django_setnx_lock.testing import LockTester
from example_project.shop.models import Charge, Order
from tests.admin import orders
from tests.admin.groups import RELEASE
from tests.admin.orders import Page, Person
from tests.admin.pages import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.orders")]


@pytest.fixture(autouse=True)
def redis() -> Iterator[LockTester]:
    """Give the server in memory and its clock; forms that are left open hold their locks."""
    with LockTester("ignore") as tester:
        yield tester


def make_order(**values: str) -> Order:
    made: Order = Order.objects.create(**values)
    return made


@pytest.fixture
def order() -> Order:
    return make_order(number="7", customer="Ann Lee", amount="10.00")


@pytest.fixture
def other() -> Order:
    return make_order(number="8", customer="Bo Berg", amount="20.00")


@pytest.fixture
def ann() -> Person:
    return Person("ann")


@pytest.fixture
def bob() -> Person:
    return Person("bob")


ANOTHER_TAB = (
    "You have this open in another tab or browser, or did not leave it there. "
    "Save in one of them only."
)


def stored(order: Order) -> tuple[str, str]:
    order.refresh_from_db()
    return order.customer, str(order.amount)


# The form of one person


def test_an_open_form_holds_the_lock_and_saving_releases_it(
    redis: LockTester, order: Order, ann: Person
) -> None:
    page = ann.open(order)
    info = redis.assert_locked(f"order:{order.pk}")
    page.saved(customer="Ann Moe")

    assert page.is_editable
    assert info.holder is not None
    assert info.holder.user == "ann"
    assert stored(order) == ("Ann Moe", "10.00")
    redis.assert_released(f"order:{order.pk}")


def test_the_lock_is_held_while_it_is_saved_and_the_saving_code_may_take_it_again(
    redis: LockTester, order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.SETNX_LOCK = {**settings.SETNX_LOCK, "REENTRANT": True}
    seen: list[bool] = []

    def save_model(self: Any, request: Any, obj: Order, *more: Any, **named: Any) -> None:
        with lock(f"order:{obj.pk}", blocking_timeout=0) as held:
            seen.append(held.owned())
        obj.save()

    monkeypatch.setattr(orders.OrderAdmin, "save_model", save_model)
    ann.open(order).saved(customer="Ann Moe")

    assert seen == [True]
    redis.assert_released(f"order:{order.pk}")


def test_a_mistake_in_the_form_keeps_the_lock_and_what_was_typed(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    again = ann.open(order).refused(customer="Ann Moe", amount="much")

    redis.assert_locked(f"order:{order.pk}")
    assert not bob.open(order).is_editable
    assert again.notice == ""
    again.saved(amount="11.00")
    assert stored(order) == ("Ann Moe", "11.00")


def test_saving_and_going_on_keeps_the_lock_and_warns_nobody_of_the_tab_of_before(
    order: Order, ann: Person, bob: Person
) -> None:
    page = ann.open(order)
    fields = {**page.fields, "_continue": "yes", "customer": "Ann Moe"}

    response = ann.client.post(ann.url(order), fields, follow=True)

    assert Page(ann, order, response).notice == ""
    assert not bob.open(order).is_editable


def test_who_may_only_view_takes_no_lock(redis: LockTester, order: Order) -> None:
    reader = Person("rob", "view_order")

    assert not reader.open(order).is_editable
    redis.assert_not_locked(f"order:{order.pk}")


def test_an_order_is_added_as_ever(ann: Person) -> None:
    fields = orders.values(ann.client.get(f"{ann.url()}add/").content.decode())
    typed = {"number": "9", "customer": "Cy", "amount": "1.00", "_save": "Save"}
    ann.client.post(f"{ann.url()}add/", {**fields, **typed})

    assert Order.objects.get().customer == "Cy"


def test_the_ticket_is_neither_in_the_page_nor_in_the_cookies(
    order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    give_away = type(lock("any").take()).give_away

    def noted(self: Any, *args: Any) -> str:
        given.append(give_away(self, *args))
        return given[-1]

    monkeypatch.setattr("django_setnx_lock.core.LockHandle.give_away", noted)
    page = ann.open(order)
    (token,) = re.findall(r'"token":"([^"]+)"', given[0])

    assert token not in page.content
    assert token not in str(page.response.cookies) + str(ann.client.cookies)
    assert token not in repr(dict(ann.client.session))


# The second person


def test_the_second_person_reads_who_edits_since_when_and_cannot_edit(
    order: Order, other: Order, ann: Person, bob: Person
) -> None:
    Person("<b>cyd</b>").open(other)
    ann.open(order)

    page, escaped = bob.open(order), bob.open(other)

    assert "<b>cyd</b>" not in escaped.content
    assert escaped.notice.startswith("<b>cyd</b> is working on this order")
    assert not page.is_editable
    assert re.match(r"ann is working on this order \(since \d\d/\d\d/\d{4} .*\)\. ", page.notice)
    assert "Ann Lee" in page.content
    assert 'name="_save"' not in page.content
    assert "deletelink" not in page.content


def test_the_second_person_cannot_save_and_keeps_what_was_typed(
    order: Order, ann: Person, bob: Person
) -> None:
    late = bob.open(order)
    late.leave()
    first = ann.open(order)

    again = late.refused(customer="Bob Roe", amount="99.00")

    assert stored(order) == ("Ann Lee", "10.00")
    assert again.errors[0].startswith("ann is working on this order (since ")
    # When the first has left, it is saved.
    first.leave()
    again.saved()
    assert stored(order) == ("Bob Roe", "99.00")


def test_work_that_is_no_form_is_named_to_those_who_may_see_locks(
    redis: LockTester, order: Order, bob: Person
) -> None:
    clerk = Person("rob", "view_order", "change_order")
    with redis.held_elsewhere(f"order:{order.pk}", label="import"):
        seen, seen_by_clerk = bob.open(order), clerk.open(order)

    assert seen.notice.startswith("elsewhere.invalid:")
    assert "(import)" in seen.notice
    assert seen_by_clerk.notice.startswith("Somebody else is working on this order")


# What users of other edit locks report


def test_a_second_tab_of_one_person_gets_the_form_with_a_warning_and_overwrites_nothing(
    redis: LockTester, order: Order, ann: Person
) -> None:
    first = ann.open(order)

    second, other_browser = ann.open(order), Person("ann").open(order)
    first.saved(customer="Ann Moe")
    again = second.refused(amount="99.00")

    assert (second.is_editable, second.notice) == (True, ANOTHER_TAB)
    assert (other_browser.is_editable, other_browser.notice) == (True, ANOTHER_TAB)
    assert stored(order) == ("Ann Moe", "10.00")
    assert again.errors[0].startswith("This order was changed after you opened it.")
    redis.assert_released(f"order:{order.pk}")


def test_closing_the_first_of_two_tabs_leaves_the_lock_with_the_second(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    first, second = ann.open(order), ann.open(order)

    first.leave()
    redis.assert_locked(f"order:{order.pk}")
    second.leave()
    redis.assert_released(f"order:{order.pk}")
    assert bob.open(order).is_editable


def test_who_went_home_with_the_form_open_locks_nobody_out_after_the_lease(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    ann.open(order)
    redis.advance(61)

    page = bob.open(order)

    assert page.is_editable
    assert page.notice == ""


def test_a_related_row_is_saved_under_the_lock_unless_it_was_changed_elsewhere(
    order: Order, ann: Person, bob: Person
) -> None:
    charge = Charge.objects.create(order=order, amount="3.00")
    page = ann.open(order)
    assert 'name="charges-0-amount"' not in bob.open(order).content
    page.saved(**{"charges-0-amount": "5.00"})

    page = ann.open(order)
    Charge.objects.update(amount="4.00")
    page.refused(**{"charges-0-amount": "6.00"})
    charge.refresh_from_db()
    assert str(charge.amount) == "4.00"

    page = ann.open(order)
    charge.delete()
    page.refused(customer="Ann Moe")
    page = ann.open(order)
    Charge.objects.create(order=order, amount="3.00")
    page.refused(customer="Ann Moe")


def test_in_an_emergency_who_may_release_locks_takes_over(
    order: Order, ann: Person, bob: Person
) -> None:
    first = ann.open(order)

    page = take_over(bob, order)

    assert page.is_editable
    assert [entry.user for entry in LogEntry.objects.filter(object_id=str(order.pk))] == [bob.user]
    page.saved(customer="Bob Roe")
    # The one who was taken from overwrites nothing.
    first.refused(customer="Ann Moe")
    assert stored(order)[0] == "Bob Roe"


def take_over(person: Person, order: Order) -> Page:
    """Press the button of the form that cannot be edited, and confirm."""
    page = person.open(order)
    assert "Take over…" in page.content
    question = person.client.post(person.url(order), {**page.fields, "action": RELEASE})
    content = question.content.decode()
    fields = {**orders.values(content), "reason": "urgent"}
    return Page(person, order, person.client.post(person.url(order), fields, follow=True))


def test_the_one_taken_from_is_told_at_once_and_at_save_and_keeps_what_was_typed(
    order: Order, ann: Person, bob: Person
) -> None:
    page = ann.open(order)
    take_over(bob, order)

    assert page.beacon() == "bob has taken this from you; what you typed is not saved."
    again = page.refused(customer="Ann Moe")
    assert again.errors[0].startswith("bob is working on this order (since ")
    assert stored(order)[0] == "Ann Lee"


def test_a_lock_that_was_force_released_is_not_taken_again_by_the_open_form(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    page = ann.open(order)
    seen = redis.assert_locked(f"order:{order.pk}")
    inspector().force_release(seen.name, seen.fingerprint, by="bob", reason="urgent")

    assert page.beacon() == "bob has taken this from you; what you typed is not saved."
    redis.assert_not_locked(f"order:{order.pk}")
    page.saved(customer="Ann Moe")


def test_without_the_permission_nobody_takes_over(order: Order, ann: Person) -> None:
    page = ann.open(order)
    clerk = Person("rob", "view_order", "change_order", "view_lock")

    shown = clerk.open(order)
    response = clerk.client.post(clerk.url(order), {"action": RELEASE})

    assert "Take over" not in shown.content
    assert response.status_code == 403
    page.saved(customer="Ann Moe")


def test_where_only_a_warning_is_wanted_the_later_save_overwrites_nothing_either(
    order: Order,
) -> None:
    ann, bob = Person("ann", site="warning"), Person("bob", site="warning")
    first, second = ann.open(order), bob.open(order)
    second.saved(customer="Bob Roe")

    first.refused(amount="99.00")

    assert second.notice.startswith("ann is working on this order")
    assert stored(order) == ("Bob Roe", "10.00")


def test_where_no_lock_is_wanted_the_form_is_that_of_django(
    redis: LockTester, order: Order
) -> None:
    page = Person("ann", site="plain").open(order)

    redis.assert_not_locked(f"order:{order.pk}")
    assert not page.fields.keys() & set(orders.HIDDEN)
    page.saved(customer="Ann Moe")


def test_the_list_says_who_edits_with_one_question_to_redis(
    redis: LockTester, order: Order, other: Order, ann: Person, bob: Person
) -> None:
    ann.open(order)
    with CaptureQueriesContext(connection):
        page = bob.listed()

    assert page.holder_of(order) == "ann"
    assert page.holder_of(other) == "-"


# Leaving


def test_a_page_that_is_loaded_again_keeps_its_lock_though_the_old_one_says_late_that_it_is_left(
    redis: LockTester, order: Order, ann: Person
) -> None:
    old = ann.open(order)
    ann.open(order)

    old.leave()

    redis.assert_locked(f"order:{order.pk}")


def test_cancelling_saves_nothing_and_releases_the_lock(
    redis: LockTester, order: Order, ann: Person
) -> None:
    answer = ann.open(order).send("_leave", customer="Ann Moe", amount="much")

    assert answer == []
    assert stored(order) == ("Ann Lee", "10.00")
    redis.assert_released(f"order:{order.pk}")


def test_who_says_in_time_that_the_form_is_open_keeps_the_lock(
    redis: LockTester, order: Order, ann: Person
) -> None:
    page = ann.open(order)
    for _ in range(4):
        redis.advance(40)
        assert page.beacon() == ""

    redis.assert_locked(f"order:{order.pk}")
    page.saved(customer="Ann Moe")


def test_the_lease_of_somebody_else_is_not_extended(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    ann.open(order)
    late = bob.open(order)
    redis.advance(40)

    problem = late.beacon()
    late.beacon("_leave")
    redis.assert_locked(f"order:{order.pk}")
    redis.advance(21)

    assert problem.startswith("ann is working on this order")
    redis.assert_not_locked(f"order:{order.pk}")


def test_the_script_of_a_page_needs_a_token_and_the_permission(order: Order, ann: Person) -> None:
    page = ann.open(order)
    url, sent = ann.url(order), {"_lock_script": "yes", "_leave": "yes"}
    strict = Person("ann").client
    strict.handler.enforce_csrf_checks = True

    assert strict.post(url, sent).status_code == 403
    assert Person("rob", "view_order").client.post(url, sent).status_code == 403
    page.saved()


# Leases that are over


def test_a_form_whose_lease_is_over_cannot_overwrite_a_newer_edit(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    page = ann.open(order)
    redis.advance(61)
    # Where nothing changed, it is saved.
    page.saved(customer="Ann Lee")
    page = ann.open(order)
    redis.advance(61)
    bob.open(order).saved(amount="12.00")

    again = page.refused(customer="Ann Moe")

    assert stored(order) == ("Ann Lee", "12.00")
    assert again.errors[0].startswith("This order was changed after you opened it.")
    redis.assert_released(f"order:{order.pk}")


def test_a_form_that_does_not_say_what_it_shows_is_not_saved(order: Order, ann: Person) -> None:
    page = ann.open(order)
    del page.fields["_lock_seen"]

    page.refused(customer="Ann Moe")

    assert stored(order)[0] == "Ann Lee"


def test_a_lock_that_is_lost_while_it_is_saved_rolls_back_and_keeps_what_was_typed(
    redis: LockTester, order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_model(self: Any, request: Any, obj: Order, *more: Any, **named: Any) -> None:
        obj.save()
        redis.lost(f"order:{obj.pk}", by="bob", reason="urgent")

    monkeypatch.setattr(orders.OrderAdmin, "save_model", save_model)

    again = ann.open(order).refused(customer="Ann Moe")

    assert stored(order)[0] == "Ann Lee"
    assert "force-released by bob: urgent" in again.errors[0]
    assert not LogEntry.objects.filter(object_id=str(order.pk)).exists()
    assert messages(ann.client.get("/orders/")) == []


def test_a_lock_that_saving_asks_for_and_does_not_get_keeps_what_was_typed(
    redis: LockTester, order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_model(self: Any, request: Any, obj: Order, *more: Any, **named: Any) -> None:
        obj.save()
        lock("stock", blocking_timeout=0).take().release()

    monkeypatch.setattr(orders.OrderAdmin, "save_model", save_model)
    page = ann.open(order)

    with redis.held_elsewhere("stock"):
        page.refused(customer="Ann Moe")

    assert stored(order)[0] == "Ann Lee"


# Without Redis


def test_without_redis_the_form_opens_with_a_warning_and_overwrites_no_newer_edit(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    with redis.unreachable():
        first, second = ann.open(order), bob.open(order)
        second.saved(amount="12.00")
        first.refused(customer="Ann Moe")

    assert second.notice.startswith("Others are not kept out now;")
    assert stored(order) == ("Ann Lee", "12.00")


def test_without_the_cache_the_form_opens_with_a_warning_and_is_saved(
    redis: LockTester, order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(self: Any, key: str, *more: Any, **named: Any) -> Any:
        raise ConnectionInterrupted(None) from OSError("the cache is away")

    monkeypatch.setattr(RedisCache, "get", get)
    page = ann.open(order)
    page.saved(customer="Ann Moe")

    assert page.notice.startswith("Others are not kept out now;")
    assert "the cache is away" in page.notice
    assert stored(order)[0] == "Ann Moe"
    redis.assert_released(f"form:{ann.user.pk}:order:{order.pk}")


def test_what_others_left_in_the_place_of_a_forms_ticket_is_passed_over(
    redis: LockTester, order: Order, ann: Person
) -> None:
    caches["default"].set(f"form:{ann.user.pk}:order:{order.pk}", 5)
    page = ann.open(order)

    redis.assert_locked(f"order:{order.pk}")
    page.saved(customer="Ann Moe")
    assert page.notice == ""


# Popups


def test_a_popup_is_locked_and_saved_in_the_same_way(
    redis: LockTester, order: Order, ann: Person, bob: Person
) -> None:
    page = ann.open(order, "?_popup=1")
    seen = bob.open(order, "?_popup=1")
    fields = {**page.fields, "customer": "Ann Moe", "_save": "Save"}
    response = ann.client.post(ann.url(order) + "?_popup=1", fields)

    assert not seen.is_editable
    assert "data-popup-response" in response.content.decode()
    assert stored(order)[0] == "Ann Moe"
    redis.assert_released(f"order:{order.pk}")


# The list


def test_rows_of_the_list_that_others_edit_are_not_saved_and_named_and_the_others_are(
    redis: LockTester, order: Order, other: Order, ann: Person, bob: Person
) -> None:
    page = bob.listed()
    ann.open(order)
    mine, free = page.row_of(order), page.row_of(other)

    told = page.send(**{f"{mine}customer": "Bob Roe", f"{free}customer": "Bo Lund"})

    assert stored(order)[0] == "Ann Lee"
    assert stored(other)[0] == "Bo Lund"
    assert any("ann is working" in one and "customer: Bob Roe" in one for one in told)
    redis.assert_locked(f"order:{order.pk}")
    redis.assert_released(f"order:{other.pk}")


def test_a_row_of_the_list_that_changed_after_it_was_shown_is_not_overwritten(
    order: Order, other: Order, ann: Person, bob: Person
) -> None:
    page = bob.listed()
    ann.open(order).saved(customer="Ann Moe")

    not_touched = page.send(**{f"{page.row_of(other)}amount": "99.00"})
    touched = page.send(**{f"{page.row_of(order)}amount": "99.00"})

    assert not_touched == ["success: 1 order was changed successfully."]
    assert any("changed after you opened the list" in one for one in touched)
    assert (stored(order), stored(other)) == (("Ann Moe", "10.00"), ("Bo Berg", "99.00"))


@pytest.mark.parametrize("method", ["save_model", "delete_model"])
def test_a_lock_that_is_lost_while_the_list_is_saved_or_a_row_deleted_rolls_all_of_it_back(
    redis: LockTester, order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    real = getattr(orders.OrderAdmin, method)

    def losing(self: Any, request: Any, obj: Order, *more: Any, **named: Any) -> None:
        redis.lost(f"order:{obj.pk}")
        real(self, request, obj, *more, **named)

    monkeypatch.setattr(orders.OrderAdmin, method, losing)
    page = ann.listed()

    if method == "save_model":
        (told,) = page.send(**{f"{page.row_of(order)}customer": "Ann Moe"})
    else:
        (told,) = ann.delete(order)

    assert told.startswith(("error: Nothing was saved.", "error: Nothing was deleted."))
    assert stored(order)[0] == "Ann Lee"


# Deletion and actions


def test_a_row_that_somebody_edits_is_not_deleted(order: Order, ann: Person, bob: Person) -> None:
    page = ann.open(order)

    (told,) = bob.delete(order)

    assert told.startswith("error: Nothing was deleted. (ann is working on this order")
    page.saved(customer="Ann Moe")


def test_a_free_row_is_deleted_and_the_lock_of_the_own_form_with_it(
    redis: LockTester, order: Order, ann: Person
) -> None:
    ann.open(order)

    (told,) = ann.delete(order)

    assert told.startswith("success: ")
    assert not Order.objects.exists()
    redis.assert_released(f"order:{order.pk}")


def test_deleting_many_skips_rows_that_somebody_edits(
    order: Order, other: Order, ann: Person, bob: Person
) -> None:
    ann.open(order)

    told = bob.choose("delete_selected", [order, other], post="yes")

    assert list(Order.objects.all()) == [order]
    assert any(
        one.startswith("warning: 1 order was skipped: Order 7 (held by ann@") for one in told
    )


def test_an_action_that_takes_more_than_the_permission_to_view_skips_rows_that_somebody_edits(
    order: Order, other: Order, ann: Person, bob: Person
) -> None:
    ann.open(order)

    bob.choose("pay", [order, other])

    assert list(Order.objects.filter(paid_by="clerk")) == [other]
    assert bob.choose("export", [order, other]) == ["info: exported 2"]


# Mistakes of who writes the admin


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"lock_key": "order:<pk"}, "without its partner"),
        ({"lock_editing": "yes"}, "lock_editing is True, 'warn' or False, not 'yes'"),
        ({"edit_timeout": 0}, "timeout"),
    ],
)
def test_what_cannot_be_is_told_when_the_admin_is_registered(
    wrong: dict[str, Any], problem: str
) -> None:
    kind: Any = type("Wrong", (orders.OrderAdmin,), wrong)

    with pytest.raises((ImproperlyConfigured, ValueError), match=problem):
        kind(Order, admin.AdminSite())
    with pytest.raises(TypeError, match="put LockedAdminMixin before ModelAdmin"):
        type("Wrong", (admin.ModelAdmin, LockedAdminMixin), {"lock_key": "order:<pk>"})


def test_a_template_of_ones_own_has_the_hidden_fields_too(
    order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders.OrderAdmin, "change_form_template", "admin/change_form.html")

    ann.open(order).saved(customer="Ann Moe")


def test_a_row_whose_key_cannot_be_made_opens_with_a_warning(
    order: Order, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders.OrderAdmin, "lock_key", "order:<nothing>")
    page = ann.open(order)

    assert page.is_editable
