"""The pages in a project's own admin site, and where Redis or the settings give no answer."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_setnx_lock import LockUnavailable, lock
from django_setnx_lock.admin import LockAdmin
from django_setnx_lock.core import Inspector
from django_setnx_lock.models import Lock
from tests.admin.pages import LIST, address, keys, text
from tests.settings import caches

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
DETAIL = address("change", "lock:order:42")
PAGES = pytest.mark.parametrize("page", [LIST, DETAIL])


def cache(**changed: Any) -> dict[str, Any]:
    return {"CACHES": {"default": {**caches()["default"], "OPTIONS": {}, **changed}}}


class TitledLockAdmin(LockAdmin):
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {"title": "Who holds what"})

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return super().change_view(request, object_id, form_url, {"title": "Who holds it"})


site = admin.AdminSite("ops")
site.register(Lock, TitledLockAdmin)
urlpatterns = [path("admin/", admin.site.urls), path("ops/", site.urls)]


@pytest.mark.urls(__name__)
@PAGES
def test_the_pages_of_another_site_lead_to_that_site(admin_client: Client, page: str) -> None:
    lock("order:42").take(0)

    found = admin_client.get(page.replace("/admin/", "/ops/")).content.decode()

    links = re.findall(r'(?:href|action)="(/[^"]*)"', found)
    assert [link for link in links if link.startswith("/ops/django_setnx_lock/lock/")]
    assert [link for link in links if link.startswith("/admin/")] == []


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(("page", "title"), [(LIST, "Who holds what"), (DETAIL, "Who holds it")])
def test_a_project_adds_to_the_pages_as_to_any_model_admin(
    admin_client: Client, page: str, title: str
) -> None:
    found = admin_client.get(page.replace("/admin/", "/ops/"))

    assert text(found).startswith(title)


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django has a policy of its own since 6.0")
def test_the_style_sheets_carry_the_nonce_of_the_policy(admin_client: Client) -> None:
    from django.utils.csp import CSP

    templates: Any = copy.deepcopy(settings.TEMPLATES)
    templates[0]["OPTIONS"]["context_processors"].append("django.template.context_processors.csp")
    with override_settings(
        SECURE_CSP={"style-src": [CSP.NONCE]},
        TEMPLATES=templates,
        MIDDLEWARE=[
            *settings.MIDDLEWARE,
            "django.middleware.csp.ContentSecurityPolicyMiddleware",
        ],
    ):
        page = admin_client.get(LIST)

    nonce = page.headers["Content-Security-Policy"].partition("'nonce-")[2].rstrip("'")
    sheets = re.findall(
        r"<link[^>]*(?:changelists|forms|setnx_lock/admin)\.css[^>]*>", page.content.decode()
    )
    assert len(sheets) == 3
    assert all(f'nonce="{nonce}"' in sheet for sheet in sheets)


# Where there is no answer


@PAGES
def test_when_redis_is_down_the_page_says_so_and_what_to_do_and_offers_nothing(
    admin_client: Client, fake_server: FakeServer, page: str
) -> None:
    lock("order:42").take(0)
    fake_server.connected = False

    response = admin_client.get(page)

    assert response.status_code == 200
    assert "Redis cannot be reached" in text(response)
    assert "Check that the Redis server runs and can be reached from here." in text(response)
    content = response.content.decode()
    assert "<form" not in content[content.index('<div id="content"') :]


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("timeout", "Check that the Redis server runs"),
        ("denied", "Check the cache's user name and password"),
        ("pool", "raise max_connections"),
        ("memory", "the log of the Redis server"),
    ],
)
def test_the_advice_fits_the_cause(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, cause: str, said: str
) -> None:
    def fail(*args: Any, **_: object) -> None:
        raise LockUnavailable("the cause in full", cause=cause)

    monkeypatch.setattr(Inspector, "get", fail)

    page = text(admin_client.get(DETAIL))

    assert "The cause in full." in page
    assert said in page


@PAGES
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            cache(BACKEND="django.core.cache.backends.locmem.LocMemCache"),
            "is not a django-redis cache, but",
        ),
        (cache(LOCATION="redis://ann:pass-word@127.0.0.1:1/0"), "Redis cannot be reached"),
        (cache(LOCATION="redis://ann:pass-word"), "of the cache 'default'"),
        (cache(OPTIONS={"CLIENT_CLASS": "no.such.Client"}), "of the cache 'default'"),
        ({"SETNX_LOCK": {"CACHE": "nowhere"}}, "There is no cache 'nowhere' in CACHES."),
        ({"SETNX_LOCK": {"TIME_OUT": 5}}, "unknown option 'TIME_OUT'"),
        ({"SETNX_LOCK": []}, "SETNX_LOCK must be a dict"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_named_and_no_password_is(
    admin_client: Client, page: str, changed: dict[str, Any], said: str
) -> None:
    with override_settings(**changed):
        response = admin_client.get(page)

    assert response.status_code == 200
    assert said in text(response)
    assert "Correct CACHES or SETNX_LOCK" in text(response) or "Redis" in said
    assert "pass-word" not in response.content.decode()


@override_settings(SETNX_LOCK={"CACHE": "nowhere"})
def test_where_the_cache_of_the_settings_is_missing_another_can_be_looked_at(
    admin_client: Client,
) -> None:
    lock("order:42", using="default").take(0)

    assert keys(admin_client.get(LIST, {"using": "default"})) == ["order:42"]
