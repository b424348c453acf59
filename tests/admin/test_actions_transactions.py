from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import override_settings

from django_setnx_lock import inspector
from django_setnx_lock.admin import locked_action
from tests import databases
from tests.admin.groups import GroupAdmin, act

if TYPE_CHECKING:
    from django.test import Client

    from tests.servers import FakeServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.admin.groups")]


@pytest.fixture(autouse=True)
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


@pytest.fixture
def ends(groups: list[Group], admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tell of each commit and rollback of the action, and of the first row's lock then."""
    return databases.journal(monkeypatch, f"group:{groups[0].pk}")


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def test_the_rows_of_an_action_stay_locked_until_its_commit(
    admin_client: Client, groups: list[Group], ends: list[str]
) -> None:
    act(admin_client, "shout", groups)

    assert (ends[0], names()) == ("commit default locked", ["ANN", "BOB", "CYD"])
    assert not inspector().find().locks


@override_settings(SETNX_LOCK={"UNTIL_COMMIT": False})
def test_they_are_free_before_it_where_the_setting_says_so(
    admin_client: Client, groups: list[Group], ends: list[str]
) -> None:
    act(admin_client, "shout", groups)

    assert ends[0] == "commit default open"


def test_the_rows_stay_locked_until_the_rollback_of_an_action_that_failed(
    admin_client: Client, groups: list[Group], ends: list[str]
) -> None:
    with pytest.raises(RuntimeError, match="the action failed"):
        act(admin_client, "fail", groups)

    assert ends[0] == "rollback default locked"
    assert not inspector().find().locks


def test_an_action_that_lost_a_lock_is_rolled_back(
    admin_client: Client,
    groups: list[Group],
    ends: list[str],
    fake_server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note = GroupAdmin.note

    def lose(self: Any) -> None:
        note(self)
        fake_server.client().delete(f"lock:group:{groups[0].pk}")

    monkeypatch.setattr(GroupAdmin, "note", lose)

    response = act(admin_client, "shout", groups)

    assert response.status_code == 503
    assert (ends[0], names()) == ("rollback default open", ["ann", "bob", "cyd"])


@pytest.mark.parametrize("options", [{"until_commit": "later"}, {"blocking_timeout": 1}])
def test_an_action_with_an_option_that_it_cannot_have_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        locked_action("group:<pk>", **options)
