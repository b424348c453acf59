from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_setnx_lock.conf import DEFAULTS, get_config


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
