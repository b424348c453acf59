from __future__ import annotations

from django.conf import settings
from django.test import override_settings
from django.urls import path

from django_setnx_lock import redis_lock
from tests.checked_views import found, plain


def test_a_cache_that_does_not_exist_is_an_error() -> None:
    view = redis_lock("all", using="other")(plain)

    (error,) = found("E011", path("orders/", view))

    assert error.id == "django_setnx_lock.E011"
    assert "using='other': there is no cache 'other' in CACHES" in error.msg


def test_a_cache_without_a_location_is_an_error() -> None:
    view = redis_lock("all", using="other")(plain)
    other = {"BACKEND": "django_redis.cache.RedisCache"}

    with override_settings(CACHES={**settings.CACHES, "other": other}):
        (error,) = found("E011", path("orders/", view))

    assert "the cache 'other' has no LOCATION" in error.msg


def test_a_cache_that_can_hold_locks_is_none() -> None:
    view = redis_lock("all", using="default")(plain)

    assert found("E011", path("orders/", view)) == []


def test_an_attribute_that_no_request_is_known_to_have_is_a_warning() -> None:
    view = redis_lock("order:<order.pk>")(plain)

    (warning,) = found("W004", path("orders/<int:pk>/", view))

    assert warning.id == "django_setnx_lock.W004"
    assert warning.hint is not None
    assert "write <request.order.pk>" in warning.hint


def test_an_attribute_named_through_the_request_is_none() -> None:
    view = redis_lock("order:<request.order.pk>")(plain)

    assert found("W004", path("orders/<int:pk>/", view)) == []


def test_an_attribute_of_an_argument_is_none() -> None:
    view = redis_lock("order:<order.pk>")(plain)

    assert found("W004", path("orders/<slug:order>/", view)) == []


def test_an_attribute_of_the_request_needs_nothing_of_the_route() -> None:
    view = redis_lock("cart:<user.pk>")(plain)

    assert found("E010", path("cart/", view)) == []
    assert found("W004", path("cart/", view)) == []
