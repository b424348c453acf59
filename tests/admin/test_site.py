"""The pages in a project's own admin site, under its content security policy."""

from __future__ import annotations

import copy
import re
from typing import Any

import django
import pytest
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_setnx_lock import lock
from django_setnx_lock.admin import LockAdmin
from django_setnx_lock.models import Lock
from tests.admin.pages import LIST, address, text

pytestmark = pytest.mark.django_db


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


@pytest.mark.urls("tests.admin.test_site")
@pytest.mark.parametrize("page", [LIST, address("change", "lock:k")])
def test_the_pages_of_another_site_lead_to_that_site(admin_client: Client, page: str) -> None:
    lock("k").take(0)

    found = admin_client.get(page.replace("/admin/", "/ops/")).content.decode()

    links = re.findall(r'(?:href|action)="(/[^"]*)"', found)
    assert [link for link in links if link.startswith("/ops/django_setnx_lock/lock/")]
    assert [link for link in links if link.startswith("/admin/")] == []


@pytest.mark.urls("tests.admin.test_site")
@pytest.mark.parametrize(
    ("page", "title"), [(LIST, "Who holds what"), (address("change", "lock:k"), "Who holds it")]
)
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
