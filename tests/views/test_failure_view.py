from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpResponse
from django.template.exceptions import TemplateDoesNotExist, TemplateSyntaxError
from django.test import override_settings
from django.urls import path
from django.utils import translation
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core import Holder
from django_setnx_lock.views import lock_failure

if TYPE_CHECKING:
    from pathlib import Path

    from django.test import Client, RequestFactory
    from rest_framework.request import Request

HOLDER = Holder(host="web-7.internal", pid=4711, thread="Thread-9", user="zoe", label="till 3")
BUSY = LockBusy("the lock 'order:42' is held", key="order:42", holder=HOLDER, remaining=20.0)
DOWN = LockUnavailable("redis.internal:6379 is down", key="order:42", cause="unreachable")
LOST = LockLost("force-released by bob", key="order:42", forced_by="bob", reason="stuck")

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPTS = {
    "application/json": "application/json",
    "application/json, text/plain, */*": "application/json",
    "text/html;q=0.5, application/json": "application/json",
    BROWSER: "text/html; charset=utf-8",
    "*/*": "text/html; charset=utf-8",
    "text/html, application/json;q=0.9": "text/html; charset=utf-8",
    "image/png": "text/html; charset=utf-8",
}
STATICFILES = "django.contrib.staticfiles.storage"
LINK = '<link rel="stylesheet" href="/static/django_setnx_lock/pages.css">'
urlpatterns = [path("", lambda request: lock_failure(request, BUSY))]
ERRORS = {"busy": BUSY, "down": DOWN, "lost": LOST}
DJANGO = "django.template.backends.django.DjangoTemplates"
every_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


def answer(
    rf: RequestFactory, error: LockBusy | LockUnavailable | LockLost, accept: str = "text/html"
) -> HttpResponse:
    return lock_failure(rf.post("/", headers={"accept": accept}), error)


def busy(remaining: float | None) -> LockBusy:
    return LockBusy("busy", remaining=remaining)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((busy(left), (409, "1")) for left in (0.0, 0.3)),
        *((busy(left), (409, "2")) for left in (1.2, 7.0, None)),
        (DOWN, (503, "5")),
        (LOST, (503, None)),
    ],
)
def test_an_answer_says_in_whole_seconds_when_to_try_again_and_a_loss_says_none(
    rf: RequestFactory, error: LockBusy, expected: tuple[int, str | None]
) -> None:
    response = answer(rf, error)

    assert (response.status_code, response.headers.get("Retry-After")) == expected


@pytest.mark.parametrize(("accept", "kind"), ACCEPTS.items())
def test_the_body_fits_what_the_client_prefers(rf: RequestFactory, accept: str, kind: str) -> None:
    assert answer(rf, BUSY, accept)["Content-Type"] == kind


def test_the_json_body_tells_what_happened_and_when_to_try_again(rf: RequestFactory) -> None:
    body = json.loads(answer(rf, BUSY, "application/json").content)

    assert body == {
        "detail": "Somebody else is working on this right now. Please try again in a moment.",
        "retry_after": 2,
    }


def test_the_pages_tell_when_to_try_again_or_to_check_first(rf: RequestFactory) -> None:
    assert "try again in 2 seconds" in answer(rf, BUSY).content.decode()
    assert "check before you try again" in answer(rf, LOST).content.decode()


SECRETS = ("order", "42", "web-7", "internal", "4711", "Thread-9", "zoe", "till", "bob", "stuck")


@every_error
@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_no_answer_is_stored_or_tells_the_public_of_key_or_holder(
    rf: RequestFactory, error: LockBusy, accept: str
) -> None:
    response = answer(rf, error, accept)

    assert (response["Cache-Control"], response["Vary"]) == ("no-store", "Accept")
    everything = f"{response.headers} {response.content.decode()}"
    assert [secret for secret in SECRETS if secret in everything] == []


@every_error
def test_pages_load_nothing_but_their_style_and_fit_light_and_dark(
    rf: RequestFactory, error: LockBusy
) -> None:
    page = answer(rf, error).content.decode()

    assert '<meta name="color-scheme" content="light dark">' in page
    assert LINK in page
    rest = page.replace(LINK, "")
    assert [part for part in ("src=", "href=", "url(", "<script", "style") if part in rest] == []


@pytest.mark.parametrize(
    "project",
    [
        {"INSTALLED_APPS": ["django_setnx_lock"]},
        {"STATIC_URL": None},
        {"STORAGES": {"staticfiles": {"BACKEND": f"{STATICFILES}.ManifestStaticFilesStorage"}}},
    ],
    ids=["no staticfiles", "no url", "no manifest"],
)
def test_pages_do_without_their_style_where_nothing_serves_it(
    rf: RequestFactory, project: dict[str, Any]
) -> None:
    with override_settings(**project):
        page = answer(rf, BUSY)

    assert page.status_code == 409
    assert "<h1>" in page.content.decode()
    assert "stylesheet" not in page.content.decode()


def test_the_style_is_there_for_staticfiles_to_serve() -> None:
    assert finders.find("django_setnx_lock/pages.css") is not None


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django has a policy of its own since 6.0")
@pytest.mark.parametrize("processors", [[], ["django.template.context_processors.csp"]])
def test_a_policy_blocks_nothing_in_the_pages(client: Client, processors: list[str]) -> None:
    from django.utils.csp import CSP

    templates: Any = copy.deepcopy(settings.TEMPLATES)
    templates[0]["OPTIONS"]["context_processors"] += processors
    policy = [CSP.NONCE] if processors else [CSP.SELF]
    with override_settings(
        ROOT_URLCONF=__name__,
        SECURE_CSP={"default-src": policy},
        TEMPLATES=templates,
        MIDDLEWARE=["django.middleware.csp.ContentSecurityPolicyMiddleware"],
    ):
        response = client.get("/")

    page, header = response.content.decode(), response.headers["Content-Security-Policy"]
    assert "<style" not in page
    assert "style=" not in page
    if processors:
        nonce = header.partition("'nonce-")[2].rstrip("'")
        assert f'pages.css" nonce="{nonce}">' in page
    else:
        assert LINK in page


def test_pages_follow_the_language_and_its_direction(rf: RequestFactory) -> None:
    with translation.override("he"):
        page = answer(rf, BUSY).content.decode()

    assert '<html lang="he" dir="rtl">' in page


def overridden(folder: Path, name: str, text: str) -> override_settings:
    """Have the project's own text be the page of that name."""
    (folder / "django_setnx_lock").mkdir()
    (folder / "django_setnx_lock" / f"{name}.html").write_text(text)
    processors = ["django.template.context_processors.request"]
    engine = {"BACKEND": DJANGO, "DIRS": [folder], "OPTIONS": {"context_processors": processors}}
    return override_settings(TEMPLATES=[engine])


@pytest.mark.parametrize(("error", "name"), [(BUSY, "busy"), (DOWN, "unavailable")])
def test_a_project_can_override_the_pages(
    rf: RequestFactory, tmp_path: Path, error: LockBusy, name: str
) -> None:
    with overridden(tmp_path, name, "{{ request.path }} {{ retry_after }} {{ detail }}"):
        page = answer(rf, error).content.decode()

    assert page.startswith(f"/ {2 if name == 'busy' else 5} ")
    assert page.endswith(".")


@override_settings(TEMPLATES=[])
def test_a_project_without_templates_answers_with_json(rf: RequestFactory) -> None:
    response = answer(rf, BUSY, BROWSER)

    assert (response.status_code, response["Content-Type"]) == (409, "application/json")


@pytest.mark.parametrize(
    ("text", "error"),
    [("{% extends 'gone.html' %}", TemplateDoesNotExist), ("{% if %}", TemplateSyntaxError)],
)
def test_a_broken_override_is_not_hidden(
    rf: RequestFactory, tmp_path: Path, text: str, error: type[Exception]
) -> None:
    with overridden(tmp_path, "busy", text), pytest.raises(error):
        answer(rf, BUSY)


@pytest.mark.parametrize("accept", ["", BROWSER])
def test_a_rest_framework_view_answers_in_what_it_has_settled_on(accept: str) -> None:
    class Api(APIView):
        def post(self, request: Request) -> HttpResponse:
            return lock_failure(request, BUSY)

    response = Api.as_view()(APIRequestFactory().post("/", headers={"accept": accept or "*/*"}))

    kind = "text/html; charset=utf-8" if accept else "application/json"
    assert response["Content-Type"] == kind
