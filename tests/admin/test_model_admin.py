"""Two people at one form of the admin: who may save, who is told what, and what is not lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django_redis.cache import RedisCache
from django_redis.exceptions import ConnectionInterrupted

from django_setnx_lock import inspector, lock
from django_setnx_lock.admin import LockedAdminMixin
from django_setnx_lock.testing import LockTester
from example_project.shop.models import Charge, Order
from tests import databases
from tests.admin import orders
from tests.admin.groups import RELEASE
from tests.admin.orders import Page, Person, at_once, save_at_once, while_saving
from tests.admin.pages import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.orders")]


class Shop(NamedTuple):
    """Two orders, two people who edit them, and the server in memory with its clock."""

    redis: LockTester
    order: Order
    other: Order
    ann: Person
    bob: Person

    @property
    def key(self) -> str:
        """The key of the first order."""
        return f"order:{self.order.pk}"


@pytest.fixture(autouse=True)
def shop() -> Iterator[Shop]:
    """Give the shop; forms that are left open hold their locks."""
    order = Order.objects.create(number="7", customer="Ann Lee", amount="10.00")
    other = Order.objects.create(number="8", customer="Bo Berg", amount="20.00")
    with LockTester("ignore") as redis:
        yield Shop(redis, order, other, Person("ann"), Person("bob"))


ANOTHER_TAB = (
    "You have this open in another tab or browser, or did not leave it there. "
    "Save in one of them only."
)


def stored(order: Order) -> tuple[str, str]:
    order.refresh_from_db()
    return order.customer, str(order.amount)


# The form of one person


def test_an_open_form_holds_the_lock_and_saving_releases_it(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    info = shop.redis.assert_locked(shop.key)
    page.saved(customer="Ann Moe")

    assert page.is_editable
    assert info.holder is not None
    assert info.holder.user == "ann"
    assert stored(shop.order) == ("Ann Moe", "10.00")
    shop.redis.assert_released(shop.key)


def test_the_saving_code_may_take_the_lock_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.SETNX_LOCK = {**settings.SETNX_LOCK, "REENTRANT": True}
    held: list[bool] = []
    while_saving(
        monkeypatch, lambda _: held.append(lock(shop.key, blocking_timeout=0).take().owned())
    )

    shop.ann.open(shop.order).saved(customer="Ann Moe")

    assert held == [True]


def test_a_mistake_in_the_form_keeps_the_lock_and_what_was_typed(shop: Shop) -> None:
    again = shop.ann.open(shop.order).refused(customer="Ann Moe", amount="much")

    shop.redis.assert_locked(shop.key)
    assert not shop.bob.open(shop.order).is_editable
    assert again.notice == ""
    again.saved(amount="11.00")
    assert stored(shop.order) == ("Ann Moe", "11.00")


def test_saving_and_going_on_keeps_the_lock_and_warns_nobody(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    fields = {**page.fields, "_continue": "yes", "customer": "Ann Moe"}

    response = shop.ann.client.post(shop.ann.url(shop.order), fields, follow=True)

    assert Page(shop.ann, shop.order, response).notice == ""
    assert not shop.bob.open(shop.order).is_editable


def test_who_may_only_view_takes_no_lock(shop: Shop) -> None:
    reader = Person("rob", "view_order")

    assert not reader.open(shop.order).is_editable
    shop.redis.assert_not_locked(shop.key)


def test_an_order_is_added_as_ever(shop: Shop) -> None:
    fields = orders.values(shop.ann.client.get(f"{shop.ann.url()}add/").content.decode())
    typed = {"number": "9", "customer": "Cy", "amount": "1.00", "_save": "Save"}
    shop.ann.client.post(f"{shop.ann.url()}add/", {**fields, **typed})

    assert Order.objects.get(number="9").customer == "Cy"


def test_the_ticket_is_not_in_the_page_or_a_cookie(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    give_away = type(lock("any").take()).give_away

    def noted(self: Any, *args: Any) -> str:
        given.append(give_away(self, *args))
        return given[-1]

    monkeypatch.setattr("django_setnx_lock.core.LockHandle.give_away", noted)
    page = shop.ann.open(shop.order)
    (token,) = re.findall(r'"token":"([^"]+)"', given[0])

    assert token not in page.content
    assert token not in str(page.response.cookies) + str(shop.ann.client.cookies)
    assert token not in repr(dict(shop.ann.client.session))


# The second person


def test_the_second_person_reads_who_edits_since_when_and_cannot_edit(shop: Shop) -> None:
    Person("<b>cyd</b>").open(shop.other)
    shop.ann.open(shop.order)

    page, escaped = shop.bob.open(shop.order), shop.bob.open(shop.other)

    assert "<b>cyd</b>" not in escaped.content
    assert escaped.notice.startswith("<b>cyd</b> is working on this order")
    assert not page.is_editable
    assert re.match(r"ann is working on this order \(since \d\d/\d\d/\d{4} .*\)\. ", page.notice)
    assert "Ann Lee" in page.content
    assert 'name="_save"' not in page.content
    assert "deletelink" not in page.content


def test_the_second_person_cannot_save_and_keeps_what_was_typed(shop: Shop) -> None:
    late = shop.bob.open(shop.order)
    late.leave()
    first = shop.ann.open(shop.order)

    again = late.refused(customer="Bob Roe", amount="99.00")

    assert stored(shop.order) == ("Ann Lee", "10.00")
    assert again.errors[0].startswith("ann is working on this order (since ")
    # When the first has left, it is saved.
    first.leave()
    again.saved()
    assert stored(shop.order) == ("Bob Roe", "99.00")


def test_work_that_is_no_form_is_named_to_those_who_may_see_locks(shop: Shop) -> None:
    clerk = Person("rob", "view_order", "change_order")
    with shop.redis.held_elsewhere(shop.key, label="import"):
        seen, seen_by_clerk = shop.bob.open(shop.order), clerk.open(shop.order)

    assert seen.notice.startswith("elsewhere.invalid:")
    assert "(import)" in seen.notice
    assert seen_by_clerk.notice.startswith("Somebody else is working on this order")


# What users of other edit locks report


def test_a_second_tab_of_one_person_is_warned_and_overwrites_nothing(shop: Shop) -> None:
    first = shop.ann.open(shop.order)

    second, other_browser = shop.ann.open(shop.order), Person("ann").open(shop.order)
    first.saved(customer="Ann Moe")
    again = second.refused(amount="99.00")

    assert (second.is_editable, second.notice) == (True, ANOTHER_TAB)
    assert (other_browser.is_editable, other_browser.notice) == (True, ANOTHER_TAB)
    assert stored(shop.order) == ("Ann Moe", "10.00")
    assert again.errors[0].startswith("This order was changed after you opened it.")
    shop.redis.assert_released(shop.key)


def test_closing_the_first_of_two_tabs_leaves_the_lock_with_the_second(shop: Shop) -> None:
    first, second = shop.ann.open(shop.order), shop.ann.open(shop.order)

    first.leave()
    shop.redis.assert_locked(shop.key)
    second.leave()
    shop.redis.assert_released(shop.key)
    assert shop.bob.open(shop.order).is_editable


def test_a_related_row_is_saved_under_the_lock_unless_it_was_changed_elsewhere(shop: Shop) -> None:
    charge = Charge.objects.create(order=shop.order, amount="3.00")
    page = shop.ann.open(shop.order)
    assert 'name="charges-0-amount"' not in shop.bob.open(shop.order).content
    page.saved(**{"charges-0-amount": "5.00"})

    page = shop.ann.open(shop.order)
    Charge.objects.update(amount="4.00")
    page.refused(**{"charges-0-amount": "6.00"})
    charge.refresh_from_db()
    assert str(charge.amount) == "4.00"

    page = shop.ann.open(shop.order)
    charge.delete()
    page.refused(customer="Ann Moe")
    page = shop.ann.open(shop.order)
    Charge.objects.create(order=shop.order, amount="3.00")
    page.refused(customer="Ann Moe")


TAKEN = "bob has taken this from you; what you typed is not saved."


def test_in_an_emergency_who_may_release_locks_takes_over(shop: Shop) -> None:
    first, shown = shop.ann.open(shop.order), shop.bob.open(shop.order)
    assert "Take over…" in shown.content

    asked = {**shown.fields, "action": RELEASE}
    question = shop.bob.client.post(shop.bob.url(shop.order), asked).content.decode()
    given = {**orders.values(question), "reason": "urgent"}
    answer = shop.bob.client.post(shop.bob.url(shop.order), given, follow=True)
    page = Page(shop.bob, shop.order, answer)

    assert page.is_editable
    (entry,) = LogEntry.objects.filter(object_id=str(shop.order.pk))
    assert entry.user == shop.bob.user
    # The one who was taken from is told, and overwrites nothing.
    assert first.beacon() == TAKEN
    again = first.refused(customer="Ann Moe")
    assert again.errors[0].startswith("bob is working on this order (since ")
    page.saved(customer="Bob Roe")
    again.refused(customer="Ann Moe")
    assert stored(shop.order)[0] == "Bob Roe"


def test_a_lock_that_was_force_released_is_not_taken_again_by_the_open_form(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    seen = shop.redis.assert_locked(shop.key)
    inspector().force_release(seen.name, seen.fingerprint, by="bob", reason="urgent")

    assert page.beacon() == TAKEN
    shop.redis.assert_not_locked(shop.key)
    page.saved(customer="Ann Moe")


def test_without_the_permission_nobody_takes_over(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    clerk = Person("rob", "view_order", "change_order", "view_lock")

    shown = clerk.open(shop.order)
    response = clerk.client.post(clerk.url(shop.order), {"action": RELEASE})

    assert "Take over" not in shown.content
    assert response.status_code == 403
    page.saved(customer="Ann Moe")


def test_a_warning_alone_overwrites_nothing_either(shop: Shop) -> None:
    ann, bob = Person("ann", site="warning"), Person("bob", site="warning")
    first, second = ann.open(shop.order), bob.open(shop.order)
    second.saved(customer="Bob Roe")

    first.refused(amount="99.00")

    assert second.notice.startswith("ann is working on this order")
    assert stored(shop.order) == ("Bob Roe", "10.00")


def test_where_no_lock_is_wanted_the_form_is_that_of_django(shop: Shop) -> None:
    page = Person("ann", site="plain").open(shop.order)

    shop.redis.assert_not_locked(shop.key)
    assert not page.fields.keys() & set(orders.HIDDEN)
    page.saved(customer="Ann Moe")


def test_the_list_says_who_edits(shop: Shop) -> None:
    shop.ann.open(shop.order)

    page = shop.bob.listed()

    assert page.holder_of(shop.order) == "ann"
    assert page.holder_of(shop.other) == "-"


# Leaving


def test_a_page_that_is_loaded_again_keeps_its_lock(shop: Shop) -> None:
    old = shop.ann.open(shop.order)
    shop.ann.open(shop.order)

    old.leave()

    shop.redis.assert_locked(shop.key)


def test_cancelling_saves_nothing_and_releases_the_lock(shop: Shop) -> None:
    answer = shop.ann.open(shop.order).send("_leave", customer="Ann Moe", amount="much")

    assert answer == []
    assert stored(shop.order) == ("Ann Lee", "10.00")
    shop.redis.assert_released(shop.key)


def test_who_says_in_time_that_the_form_is_open_keeps_the_lock(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    for _ in range(4):
        shop.redis.advance(40)
        assert page.beacon() == ""

    shop.redis.assert_locked(shop.key)
    page.saved(customer="Ann Moe")


def test_the_lease_of_somebody_else_is_not_extended(shop: Shop) -> None:
    shop.ann.open(shop.order)
    late = shop.bob.open(shop.order)
    shop.redis.advance(40)

    problem = late.beacon()
    late.beacon("_leave")
    shop.redis.assert_locked(shop.key)
    shop.redis.advance(21)

    assert problem.startswith("ann is working on this order")
    shop.redis.assert_not_locked(shop.key)


def test_the_script_of_a_page_needs_a_token_and_the_permission(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    url, sent = shop.ann.url(shop.order), {"_lock_script": "yes", "_leave": "yes"}
    strict = Person("ann").client
    strict.handler.enforce_csrf_checks = True

    assert strict.post(url, sent).status_code == 403
    assert Person("rob", "view_order").client.post(url, sent).status_code == 403
    page.saved()


# Leases that are over


def test_a_form_whose_lease_is_over_cannot_overwrite_a_newer_edit(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    shop.redis.advance(61)
    # Where nothing changed, it is saved.
    page.saved(customer="Ann Lee")
    page = shop.ann.open(shop.order)
    shop.redis.advance(61)
    late = shop.bob.open(shop.order)
    assert (late.is_editable, late.notice) == (True, "")
    late.saved(amount="12.00")

    again = page.refused(customer="Ann Moe")

    assert stored(shop.order) == ("Ann Lee", "12.00")
    assert again.errors[0].startswith("This order was changed after you opened it.")
    shop.redis.assert_released(shop.key)


def test_a_form_that_does_not_say_what_it_shows_is_not_saved(shop: Shop) -> None:
    page = shop.ann.open(shop.order)
    del page.fields["_lock_seen"]

    page.refused(customer="Ann Moe")

    assert stored(shop.order)[0] == "Ann Lee"


def test_a_lock_that_is_lost_while_it_is_saved_rolls_back_and_keeps_what_was_typed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_saving(monkeypatch, lambda _: shop.redis.lost(shop.key, by="bob", reason="urgent"))

    again = shop.ann.open(shop.order).refused(customer="Ann Moe")

    assert stored(shop.order)[0] == "Ann Lee"
    assert "force-released by bob: urgent" in again.errors[0]
    assert not LogEntry.objects.filter(object_id=str(shop.order.pk)).exists()
    assert messages(shop.ann.client.get("/orders/")) == []


def test_a_lock_that_saving_does_not_get_keeps_what_was_typed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_saving(monkeypatch, lambda _: lock("stock", blocking_timeout=0).take().release())
    page = shop.ann.open(shop.order)

    with shop.redis.held_elsewhere("stock"):
        page.refused(customer="Ann Moe")

    assert stored(shop.order)[0] == "Ann Lee"


# In transactions, and at the same time


@pytest.fixture
def ends(transactional_db: None, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tell of each commit and rollback with ATOMIC_REQUESTS, and of the lock then."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    return databases.journal(monkeypatch, shop.key)


def test_with_atomic_requests_the_commit_releases_the_lock(shop: Shop, ends: list[str]) -> None:
    page = shop.ann.open(shop.order).refused(amount="much")
    shop.redis.assert_locked(shop.key)
    ends.clear()

    page.saved(amount="11.00")

    assert ends[0] == "commit default locked"
    shop.redis.assert_released(shop.key)


def test_with_atomic_requests_a_lock_that_is_lost_rolls_back_too(
    shop: Shop, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    while_saving(monkeypatch, lambda _: shop.redis.lost(shop.key, by="bob"))

    shop.ann.open(shop.order).refused(customer="Ann Moe")

    assert stored(shop.order)[0] == "Ann Lee"


@pytest.mark.django_db(transaction=True)
def test_of_several_who_save_at_once_without_redis_one_has_saved(shop: Shop) -> None:
    with shop.redis.unreachable():
        (name,) = save_at_once(shop.order, "ann", "bob", "cyd")

    assert stored(shop.order)[0] == name


@pytest.mark.django_db(transaction=True)
def test_the_requests_of_one_person_about_one_row_come_one_after_the_other(shop: Shop) -> None:
    for _ in range(5):
        page = shop.ann.open(shop.order)
        _left, again, problem = at_once(page.leave, lambda: shop.ann.open(shop.order), page.beacon)

        assert again.is_editable
        assert problem == ""
        # Whatever came first, the page that is open now has the lock when it says so.
        assert again.beacon() == ""
        again.leave()
        shop.redis.assert_released(shop.key)


# Without Redis


def test_without_redis_the_form_warns_and_overwrites_no_newer_edit(shop: Shop) -> None:
    with shop.redis.unreachable():
        first, second = shop.ann.open(shop.order), shop.bob.open(shop.order)
        second.saved(amount="12.00")
        first.refused(customer="Ann Moe")

    assert second.notice.startswith("Others are not kept out now;")
    assert stored(shop.order) == ("Ann Lee", "12.00")


def test_without_the_cache_the_form_opens_with_a_warning_and_is_saved(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(self: Any, key: str, *more: Any, **named: Any) -> Any:
        raise ConnectionInterrupted(None) from OSError("the cache is away")

    monkeypatch.setattr(RedisCache, "get", get)
    page = shop.ann.open(shop.order)
    page.saved(customer="Ann Moe")

    assert page.notice.startswith("Others are not kept out now;")
    assert "the cache is away" in page.notice
    assert stored(shop.order)[0] == "Ann Moe"
    shop.redis.assert_released(f"form:{shop.ann.user.pk}:order:{shop.order.pk}")


def test_what_others_left_in_the_place_of_a_forms_ticket_is_passed_over(shop: Shop) -> None:
    caches["default"].set(f"form:{shop.ann.user.pk}:order:{shop.order.pk}", 5)
    page = shop.ann.open(shop.order)

    shop.redis.assert_locked(shop.key)
    page.saved(customer="Ann Moe")
    assert page.notice == ""


# Popups


def test_a_popup_is_locked_and_saved_in_the_same_way(shop: Shop) -> None:
    page = shop.ann.open(shop.order, "?_popup=1")
    seen = shop.bob.open(shop.order, "?_popup=1")
    fields = {**page.fields, "customer": "Ann Moe", "_save": "Save"}
    response = shop.ann.client.post(shop.ann.url(shop.order) + "?_popup=1", fields)

    assert not seen.is_editable
    assert "data-popup-response" in response.content.decode()
    assert stored(shop.order)[0] == "Ann Moe"
    shop.redis.assert_released(shop.key)


# The list


def test_rows_of_the_list_that_others_edit_are_named_and_not_saved(shop: Shop) -> None:
    page = shop.bob.listed()
    shop.ann.open(shop.order)
    mine, free = page.row_of(shop.order), page.row_of(shop.other)

    told = page.send(**{f"{mine}customer": "Bob Roe", f"{free}customer": "Bo Lund"})

    assert stored(shop.order)[0] == "Ann Lee"
    assert stored(shop.other)[0] == "Bo Lund"
    assert any("ann is working" in one and "customer: Bob Roe" in one for one in told)
    shop.redis.assert_locked(shop.key)
    shop.redis.assert_released(f"order:{shop.other.pk}")


def test_a_row_of_the_list_that_changed_after_it_was_shown_is_not_overwritten(shop: Shop) -> None:
    page = shop.bob.listed()
    shop.ann.open(shop.order).saved(customer="Ann Moe")

    not_touched = page.send(**{f"{page.row_of(shop.other)}amount": "99.00"})
    touched = page.send(**{f"{page.row_of(shop.order)}amount": "99.00"})

    assert not_touched == ["success: 1 order was changed successfully."]
    assert any("changed after you opened the list" in one for one in touched)
    assert (stored(shop.order), stored(shop.other)) == (("Ann Moe", "10.00"), ("Bo Berg", "99.00"))


@pytest.mark.parametrize("method", ["save_model", "delete_model"])
def test_a_lock_that_is_lost_while_a_list_is_saved_or_a_row_deleted_rolls_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    real = getattr(orders.OrderAdmin, method)

    def losing(self: Any, request: Any, obj: Order, *more: Any, **named: Any) -> None:
        shop.redis.lost(f"order:{obj.pk}")
        real(self, request, obj, *more, **named)

    monkeypatch.setattr(orders.OrderAdmin, method, losing)
    page = shop.ann.listed()

    if method == "save_model":
        (told,) = page.send(**{f"{page.row_of(shop.order)}customer": "Ann Moe"})
    else:
        (told,) = shop.ann.delete(shop.order)

    assert told.startswith(("error: Nothing was saved.", "error: Nothing was deleted."))
    assert stored(shop.order)[0] == "Ann Lee"


# Deletion and actions


def test_a_row_that_somebody_edits_is_not_deleted(shop: Shop) -> None:
    page = shop.ann.open(shop.order)

    (told,) = shop.bob.delete(shop.order)

    assert told.startswith("error: Nothing was deleted. (ann is working on this order")
    page.saved(customer="Ann Moe")


def test_a_free_row_is_deleted_and_the_lock_of_the_own_form_with_it(shop: Shop) -> None:
    shop.ann.open(shop.order)

    (told,) = shop.ann.delete(shop.order)

    assert told.startswith("success: ")
    assert list(Order.objects.all()) == [shop.other]
    shop.redis.assert_released(shop.key)


def test_deleting_many_skips_rows_that_somebody_edits(shop: Shop) -> None:
    shop.ann.open(shop.order)

    told = shop.bob.choose("delete_selected", [shop.order, shop.other], post="yes")

    assert list(Order.objects.all()) == [shop.order]
    assert any(
        one.startswith("warning: 1 order was skipped: Order 7 (held by ann@") for one in told
    )


def test_an_action_that_may_change_rows_skips_those_that_somebody_edits(shop: Shop) -> None:
    shop.ann.open(shop.order)

    shop.bob.choose("pay", [shop.order, shop.other])

    assert list(Order.objects.filter(paid_by="clerk")) == [shop.other]
    assert shop.bob.choose("export", [shop.order, shop.other]) == ["info: exported 2"]


# Mistakes of who writes the admin


KEY = {"lock_key": "order:<pk>"}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({}, 'lock_key = "order:<pk>"'),
        ({"lock_key": "order:<pk"}, "without its partner"),
        ({**KEY, "lock_editing": "yes"}, "lock_editing is True, 'warn' or False, not 'yes'"),
        ({**KEY, "edit_timeout": 0}, "timeout"),
    ],
)
def test_what_cannot_be_is_told_when_the_admin_is_registered(
    wrong: dict[str, Any], problem: str
) -> None:
    kind: Any = type("Wrong", (LockedAdminMixin, admin.ModelAdmin), wrong)

    with pytest.raises((ImproperlyConfigured, ValueError), match=problem):
        kind(Order, admin.AdminSite())


def test_the_mixin_is_named_before_the_class_that_it_locks() -> None:
    with pytest.raises(TypeError, match="put LockedAdminMixin before ModelAdmin"):
        type("Wrong", (admin.ModelAdmin, LockedAdminMixin), KEY)


def test_a_template_of_ones_own_has_the_hidden_fields_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders.OrderAdmin, "change_form_template", "admin/change_form.html")

    shop.ann.open(shop.order).saved(customer="Ann Moe")


def test_a_row_whose_key_cannot_be_made_opens_with_a_warning(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders.OrderAdmin, "lock_key", "order:<nothing>")
    page = shop.ann.open(shop.order)

    assert page.is_editable
