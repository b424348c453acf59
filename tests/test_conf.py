from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import override_settings

from django_setnx_lock import lock, redis_lock
from django_setnx_lock.conf import DEFAULTS, get_config
from django_setnx_lock.core import RedisLock

if TYPE_CHECKING:
    import redis
    from django.test import RequestFactory


def test_without_a_setting_every_option_has_its_default() -> None:
    with override_settings(SETNX_LOCK={}):
        assert get_config() == DEFAULTS


def test_an_option_that_is_given_replaces_its_default_alone() -> None:
    with override_settings(SETNX_LOCK={"TIMEOUT": 7}):
        config = get_config()

    assert config == {**DEFAULTS, "TIMEOUT": 7}


def test_an_overridden_setting_is_forgotten_afterwards() -> None:
    with override_settings(SETNX_LOCK={"TIMEOUT": 7}):
        get_config()

    assert get_config()["TIMEOUT"] == DEFAULTS["TIMEOUT"]


def test_an_option_that_does_not_exist_is_refused_where_it_is_read() -> None:
    with (
        override_settings(SETNX_LOCK={"cache": "locks"}),
        pytest.raises(ImproperlyConfigured, match="unknown option 'cache'; known are: CACHE"),
    ):
        get_config()


def test_a_setting_that_is_no_dict_is_refused() -> None:
    with (
        override_settings(SETNX_LOCK=["TIMEOUT"]),
        pytest.raises(ImproperlyConfigured, match="must be a dict, not list"),
    ):
        get_config()


@pytest.mark.parametrize("option", DEFAULTS)
def test_a_value_that_an_option_cannot_have_is_told_where_it_is_read(option: str) -> None:
    with (
        override_settings(SETNX_LOCK={option: {"no": "such"}}),
        pytest.raises(ImproperlyConfigured, match=rf"^SETNX_LOCK\['{option}'\] is .*, not {{'no'"),
    ):
        lock("a")


@pytest.mark.parametrize("value", [5, None, True, b"default", ["default", 5]])
def test_a_cache_that_is_no_alias_is_told_as_such(value: Any) -> None:
    with (
        override_settings(SETNX_LOCK={"CACHE": value}),
        pytest.raises(ImproperlyConfigured, match="is a cache alias or a list of them, not"),
    ):
        lock("a")


def test_a_prefix_that_begins_no_name_is_told_as_such() -> None:
    with (
        override_settings(SETNX_LOCK={"KEY_PREFIX": "lo}ck:"}),
        pytest.raises(ImproperlyConfigured, match=r"^SETNX_LOCK\['KEY_PREFIX'\] is 'lo}ck:': the"),
    ):
        lock("a")


@override_settings(INSTALLED_APPS=["django.contrib.contenttypes"])
def test_without_the_app_no_lock_is_made_from_the_settings() -> None:
    with pytest.raises(ImproperlyConfigured, match="add 'django_setnx_lock' to INSTALLED_APPS"):
        lock("a")


@override_settings(INSTALLED_APPS=["django.contrib.contenttypes"])
def test_without_the_app_a_decorated_view_says_so_when_it_is_called(rf: RequestFactory) -> None:
    view = redis_lock("a")(lambda request: HttpResponse())

    with pytest.raises(ImproperlyConfigured, match="add 'django_setnx_lock' to INSTALLED_APPS"):
        view(rf.get("/"))


@override_settings(INSTALLED_APPS=["django.contrib.contenttypes"])
def test_without_the_app_the_class_takes_locks(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, "a") as held:
        assert held.owned()


def test_before_django_is_set_up_nothing_is_known_of_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "apps_ready", False)
    get_config.cache_clear()

    assert get_config()["TIMEOUT"] == DEFAULTS["TIMEOUT"]


def test_the_app_may_be_installed_later() -> None:
    with override_settings(INSTALLED_APPS=[]), pytest.raises(ImproperlyConfigured):
        get_config()

    assert get_config()["TIMEOUT"] == DEFAULTS["TIMEOUT"]
