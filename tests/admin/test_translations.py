"""Under a language that puts «» around each translation, no text of the pages is without them."""

from __future__ import annotations

import gettext
import html
import re
import socket
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest, HttpResponse
from django.template.base import Lexer, TokenType
from django.test import Client, override_settings
from django.urls import path, reverse
from django.utils.functional import Promise
from django.utils.translation import trans_real

from django_setnx_lock import LockLost, LockUnavailable, inspector, lock, redis_lock, semaphore
from django_setnx_lock.admin import actions, export, history, lock_list, pages, wait_graph
from django_setnx_lock.admin.actions import locked_action
from django_setnx_lock.admin.interventions import INTERVENTIONS
from django_setnx_lock.admin.release import ACTION
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import Inspector, State, clock
from django_setnx_lock.core.holder import process_id
from django_setnx_lock.core.locks.batch import take_each
from tests.admin.groups import GroupAdmin, act
from tests.admin.groups import site as groups_site
from tests.admin.pages import HISTORY, LIST, address, hold_since, info
from tests.catalogues import PACKAGE, marked
from tests.core.helpers import ask
from tests.core.nesting import told, waiting
from tests.processes import eventually
from tests.settings import caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import FakeServer

    Page = Callable[["Visitor"], Iterator[Any]]

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

# What these tests and Django's put into Redis, the database and the settings.
_WORDS = ["admin", "ann", "bob", "cyd", "default", "other", "zzz", "stuck", "MainThread"]
_WORDS += ["ThreadPoolExecutor"]
_WORDS += ["Shop", "Orders", "UTC", "string", "none", "list", "lock:[0-9]+", "group:[0-9]+"]
# What is told in the words of Redis, of Python, and of the errors for developers.
_DETAILS = [
    "[Ww]ords of Redis",
    "FakeRedis is emulating a connection error",
    "The cache 'default' .*",
    "(?:cannot ask|cannot extend|the locks?) .*",
]
_NO_TEXT = re.compile("|".join([*_DETAILS, rf"\b(?:{'|'.join(_WORDS)})\b", r"\b[0-9a-f]{8,}\b"]))
_LETTERS = re.compile(r"[^\W\d_]+")
_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[a-z]|\{\w*\}")
_MARKED = re.compile("«[^«»]*»")
# The attributes that are shown or spoken.
_SPOKEN = {"alt", "aria-label", "data-label", "data-refresh", "placeholder", "title"}


class Marked(gettext.NullTranslations):
    """A catalogue of everything: a text is «text», and what is put into it stands outside."""

    domain = "django"

    def __init__(self) -> None:
        super().__init__()
        # What was asked for, of a plural both forms.
        self.asked: set[str] = set()

    def gettext(self, message: str) -> str:
        self.asked.add(message)
        text = message.rpartition(trans_real.CONTEXT_SEPARATOR)[2]
        return "«" + _PLACEHOLDER.sub(r"»\g<0>«", text) + "»"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        self.asked |= {msgid1, msgid2}
        return self.gettext(msgid1 if n == 1 else msgid2)

    def to_language(self) -> str:
        return "en-us"

    language = to_language


class _Texts(HTMLParser):
    """Collects what a page says, shown or spoken."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        given = dict(attrs)
        names = _SPOKEN | ({"value"} if given.get("type") == "submit" else set())
        self.found += [value for name, value in attrs if name in names and value]

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within not in ("script", "style"):
            self.found.append(data)


def texts_of(page: str) -> list[str]:
    """What is to be read or heard on a page."""
    parser = _Texts()
    parser.feed(page)
    parser.close()
    return parser.found


def unmarked(text: str) -> list[str]:
    """The words of ``text`` that were not translated, and are no data."""
    whole, text = text.strip(), text.replace(socket.gethostname(), "")
    rest = _MARKED.sub(" ", text)
    while rest != text:
        text, rest = rest, _MARKED.sub(" ", rest)
    return [f"{word} in {whole!r}" for word in _LETTERS.findall(_NO_TEXT.sub("", rest))]


def unmarked_on(response: Any) -> list[str]:
    """The words of a page, or of the text of a message, that were not translated."""
    if isinstance(response, str):
        return unmarked(response)
    texts = texts_of(response.content.decode())
    return [word for text in texts for word in unmarked(text)]


def unmarked_in_template(source: str) -> list[str]:
    """The words of a template, in all its branches, that no tag marks for translation."""
    parts: list[str] = []
    is_marked = False
    for token in Lexer(source).tokenize():
        if token.token_type == TokenType.BLOCK:
            tag, *rest = token.contents.split()
            # The block "bodyclass" is a part of an attribute.
            if tag in ("blocktranslate", "plural") or (tag == "block" and rest == ["bodyclass"]):
                is_marked = True
            elif tag in ("endblocktranslate", "endblock"):
                is_marked = False
        elif token.token_type == TokenType.TEXT and not is_marked:
            parts.append(token.contents)
    return [word for text in texts_of("".join(parts)) for word in _LETTERS.findall(text)]


class Visitor:
    """The administrator, and what the pages tell of."""

    def __init__(self, client: Client, redis: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = client
        self.redis = redis
        self.patch = monkeypatch

    def see(self, key: str) -> Any:
        return self.client.get(address("change", f"lock:{key}"))

    def press(self, page: str, key: str, **form: str) -> Any:
        """Have the form of that page sent, for whoever holds the lock now."""
        seen = {"fingerprint": info(key).fingerprint, **form}
        return self.client.post(address(page, f"lock:{key}"), seen, follow=True)


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Marked:
    """Have everybody read the language that marks all texts."""
    catalogue = Marked()
    monkeypatch.setattr(vars(trans_real)["_active"], "value", catalogue, raising=False)
    return catalogue


@pytest.fixture
def visitor(
    catalogue: Marked,
    admin_client: Client,
    fake_server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Visitor:
    """Give the administrator."""
    return Visitor(admin_client, fake_server, monkeypatch)


@redis_lock("order:42", blocking_timeout=0)
def order(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock("order:42")
def lost(request: HttpRequest) -> HttpResponse:
    inspector().force_release("lock:order:42", info("order:42").fingerprint)
    return HttpResponse("done")


urlpatterns = [
    path("admin/", admin.site.urls),
    path("groups-admin/", groups_site.urls),
    path("order/", order),
    path("lost/", lost),
]


def hold_one_of_each_kind(visitor: Visitor) -> list[str]:
    """Have a lock in each state, and return the keys."""
    client = visitor.redis.client()
    lock("1", timeout=3600, user="ann", label="zzz", note="zzz").take(0)
    lock("2", timeout=60, renew=False).take(0)
    for user in ("ann", "bob", "cyd", "zzz"):
        lock("3", shared=True, reentrant=False, timeout=3600, user=user).take(0)
        semaphore("4", 9, user=user, reentrant=False).take(0)
    with lock("5", min_hold=125, label="zzz"):
        pass
    client.set("lock:6", "theirs", px=50_000)
    client.set("lock:7", "theirs")
    client.set("lock:8", "baton:theirs", px=60_000)
    client.lpush("lock:9", "a")
    # A renewal is overdue of one, and no process lives of the next.
    lock("10", timeout=60).take(0)
    hold_since("10", 40)
    client.pexpire("lock:10", 20_000)
    lock("11", timeout=0.2, user="ann", label="zzz", renew=False).take(0)
    eventually(lambda: info("11").state is State.OVER)
    return [str(number) for number in range(1, 13)]


def lists(visitor: Visitor) -> Iterator[Any]:
    yield visitor.client.get(LIST)
    hold_one_of_each_kind(visitor)
    asked = ("", "everything=1", "q=zzz", "q=1", "state=kept", "state=free", "q=zzz&at=1")
    for one in asked:
        yield visitor.client.get(f"{LIST}?{one}")


def lists_in_each_order(visitor: Visitor) -> Iterator[Any]:
    hold_one_of_each_kind(visitor)
    for order in ("key", "worst", "held", "lease", "waiting"):
        yield visitor.client.get(f"{LIST}?o={order}")
        yield visitor.client.get(f"{LIST}?o=-{order}")


def a_list_of_more_than_are_looked_at(visitor: Visitor) -> Iterator[Any]:
    visitor.patch.setattr(lock_list, "LOOKED_AT", 2)
    visitor.patch.setattr(lock_list, "_PER_PAGE", 2)
    hold_one_of_each_kind(visitor)
    for one in ("", "o=key", "state=held", "state=kept", "p=2"):
        yield visitor.client.get(f"{LIST}?{one}")
    page = Inspector.page

    def let_go_meanwhile(*args: Any, **asked: Any) -> Any:
        return replace(page(*args, **asked), locks=(), by_lease=True)

    visitor.patch.setattr(Inspector, "page", let_go_meanwhile)
    yield visitor.client.get(f"{LIST}?o=key")


def a_search_that_goes_on(visitor: Visitor) -> Iterator[Any]:
    for number in range(600):
        visitor.redis.client().set(f"lock:{number}", "theirs", px=60_000)
    minutes = iter(range(10**6))
    visitor.patch.setattr(clock, "now", lambda: next(minutes) * 60.0)
    yield visitor.client.get(f"{LIST}?q=zzz&everything=1")


def caches_to_choose_from(visitor: Visitor) -> Iterator[Any]:
    with override_settings(CACHES={**caches(), "other": caches()["default"]}):
        lock("1").take(0)
        yield visitor.client.get(LIST)
        yield visitor.see("1")


def readers_of_whom_one_is_gone(visitor: Visitor) -> Iterator[Any]:
    client: Any = visitor.redis.client()
    holders = "{lock:1}:holders"
    dead, _living = (lock("1", shared=True, reentrant=False).take(0) for _ in range(2))
    fence, record = client.hget(holders, dead.token).decode().split(" ", 1)
    gone = f"{int(fence) - 60_000_000} {record.replace(process_id(), 'killed')}"
    client.hset(holders, dead.token, gone)
    yield visitor.client.get(LIST)
    yield visitor.see("1")


def each_lock(visitor: Visitor) -> Iterator[Any]:
    for key in hold_one_of_each_kind(visitor):
        yield visitor.see(key)
    visitor.redis.client().zrem("{lock:}:index", "lock:11")
    yield visitor.see("11")


def questions(visitor: Visitor) -> Iterator[Any]:
    hold_one_of_each_kind(visitor)
    for key in ("1", "3", "6"):
        for one in INTERVENTIONS:
            yield visitor.press(one.page, key)
    yield visitor.press("dismiss", "11")


def wrong_forms(visitor: Visitor) -> Iterator[Any]:
    lock("1", timeout=3600, user="ann").take(0)
    yield visitor.press("extend", "1", post="yes", minutes="0")
    yield visitor.press("extend", "1", post="yes", minutes="")
    with override_settings(SETNX_LOCK={"REQUIRE_REASON": True}):
        yield visitor.press("release", "1", post="yes")
    yield visitor.press("release", "1", post="yes", reason="z" * 201)


def what_was_done(visitor: Visitor) -> Iterator[Any]:
    hold_one_of_each_kind(visitor)
    yield visitor.press("stop", "1", post="yes", reason="stuck")
    yield visitor.see("1")
    yield visitor.press("stop", "1", post="yes")
    yield visitor.press("extend", "1", post="yes", minutes="10", reason="stuck")
    yield visitor.see("1")
    yield visitor.press("release", "1", post="yes", reason="stuck")
    yield visitor.press("dismiss", "11", post="yes")
    yield visitor.press("stop", "3", post="yes")
    yield visitor.see("3")
    inspector().ask_to_stop("lock:2", info("2").fingerprint)
    yield visitor.see("2")
    yield visitor.client.get("/admin/")
    yield visitor.client.get(address("history", "lock:1"))
    yield visitor.client.get(address("history", "lock:2"))


def what_was_not_done(visitor: Visitor) -> Iterator[Any]:
    hold_one_of_each_kind(visitor)
    for one in INTERVENTIONS:
        for key in ("2", "8", "12"):
            yield visitor.press(one.page, key, post="yes", minutes="10", fingerprint="0" * 16)
    yield visitor.press("stop", "6", post="yes")
    yield visitor.press("extend", "7", post="yes", minutes="10")


def many_released(visitor: Visitor) -> Iterator[Any]:
    held = [lock(str(number), user="ann").take(0) for number in range(1, 7)]
    release = f"{LIST}release/?_changelist_filters=user%3Dann"
    visitor.patch.setattr(pages, "MOST_RELEASED", 4)
    visitor.patch.setattr(export, "MOST", 1)
    file: Any = visitor.client.get(LIST, {"format": "csv"})
    assert b"".join(file.streaming_content).count(b"ann") == 1
    yield visitor.client.get(LIST, {"user": "zzz"})
    boxes = [f"{info(key).fingerprint}:lock%3A{key}" for key in "12"]
    yield visitor.client.post(release, {"selected": "1", "_selected_action": boxes[:1]})
    held[0].release()
    yield visitor.client.post(release, {"selected": "1", "_selected_action": boxes})
    question = visitor.client.post(release, {"found": "1"})
    yield question
    confirmed = {"post": "yes", "seen": question.context["seen"]}
    held[1].release()
    held[2].release()
    lock("3").take(0)
    yield visitor.client.post(release, confirmed, follow=True)
    visitor.redis.flush()
    yield visitor.client.post(release, confirmed, follow=True)


def failing(cause: str) -> Callable[..., None]:
    """Return what raises the error of Redis that has this cause."""

    def fail(*args: Any, **about: Any) -> None:
        raise LockUnavailable("words of Redis", cause=cause)

    return fail


def problems(visitor: Visitor) -> Iterator[Any]:
    lock("1").take(0)
    seen = {"fingerprint": info("1").fingerprint, "post": "yes", "minutes": "10"}

    for cause in ("unreachable", "timeout", "pool", "denied", "server", "memory"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Inspector, "get", failing(cause))
            yield visitor.client.get(address("change", "lock:1"))
    for name in ("force_release", "ask_to_stop", "extend", "dismiss"):
        visitor.patch.setattr(Inspector, name, failing("timeout"))
    for one in INTERVENTIONS:
        yield visitor.client.post(address(one.page, "lock:1"), seen)
    with override_settings(CACHES={"default": {"BACKEND": "django.core.cache.backends.dummy.X"}}):
        yield visitor.client.get(LIST)


def _told(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def locked_actions(visitor: Visitor) -> Iterator[Any]:
    groups = [Group.objects.create(name=name) for name in ("ann", "bob", "cyd")]
    visitor.patch.setattr(actions, "_NAMED", 1)
    names = [f"lock:group:{group.pk}" for group in groups]
    held = lock(f"group:{groups[0].pk}", user="bob", timeout=60).take(0)
    visitor.redis.client().set(names[1], "theirs")
    yield from _told(act(visitor.client, "shout", groups[:2]))
    yield from _told(act(visitor.client, "shout", groups[:1]))
    yield from _told(act(visitor.client, "shout", groups[1:2]))
    yield from _told(act(_may_not_see_locks(), "shout", groups[:1]))
    held.release()
    visitor.redis.client().delete(names[1])

    def lose(self: GroupAdmin) -> None:
        look = inspector()
        look.force_release(names[0], look.get(names[0]).fingerprint, by="ann", reason="stuck")

    visitor.patch.setattr(GroupAdmin, "_note", lose)
    yield from _told(act(visitor.client, "shout", groups[:1]))

    def disconnect(self: GroupAdmin) -> None:
        visitor.redis.connected = False

    visitor.patch.setattr(GroupAdmin, "_note", disconnect)
    yield from _told(act(visitor.client, "shout", groups[:1]))
    visitor.redis.connected = True

    def rename(locks: Any) -> Any:
        Group.objects.filter(pk=groups[0].pk).update(name="zzz")
        return take_each(locks)

    visitor.patch.setattr(GroupAdmin, "share", locked_action("group:<name>")(GroupAdmin.share))
    visitor.patch.setattr(actions, "take_each", rename)
    yield from _told(act(visitor.client, "share", groups[:1]))
    visitor.patch.setattr(actions, "take_each", failing("timeout"))
    yield from _told(act(visitor.client, "shout", groups))


def _may_not_see_locks() -> Client:
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__endswith="_group"))
    client = Client()
    client.force_login(clerk)
    return client


def release_of_selected(visitor: Visitor) -> Iterator[Any]:
    groups = [Group.objects.create(name=name) for name in ("ann", "bob", "cyd")]
    yield from _told(act(visitor.client, ACTION, groups))
    held = [lock(f"group:{group.pk}", user="zzz").take(0) for group in groups[:2]]
    visitor.redis.client().set(f"lock:group:{groups[2].pk}", "theirs")
    page = act(visitor.client, ACTION, groups)
    yield page
    seen = html.unescape(re.findall(r'name="seen" value="([^"]*)"', page.content.decode())[0])
    yield from _told(act(visitor.client, ACTION, groups, post="yes", seen="broken"))
    held[0].release()
    lock(f"group:{groups[0].pk}", user="bob").take(0)
    yield from _told(act(visitor.client, ACTION, groups, post="yes", seen=seen))
    visitor.redis.connected = False
    yield from _told(act(visitor.client, ACTION, groups))
    visitor.redis.connected = True


def locked_views(visitor: Visitor) -> Iterator[Any]:
    held = lock("order:42").take(0)
    yield visitor.client.get("/order/")
    yield str(
        visitor.client.get("/order/", headers={"accept": "application/json"}).json()["detail"]
    )
    held.release()
    visitor.redis.connected = False
    yield visitor.client.get("/order/")
    visitor.redis.connected = True
    yield visitor.client.get("/lost/")


def the_index_of_the_admin(visitor: Visitor) -> Iterator[Any]:
    yield visitor.client.get("/admin/django_setnx_lock/")


def past_holds(visitor: Visitor) -> Iterator[Any]:
    with override_settings(SETNX_LOCK={"HISTORY": "all"}):
        past = HISTORY + "?name=lock:1"
        for by, reason in (("ann", "stuck"), ("ann", ""), ("", "stuck"), ("", "")):
            lock("1", user="bob").take(0)
            seen = info("1").fingerprint
            inspector().force_release("lock:1", seen, by=by, reason=reason)
        yield visitor.client.get(past)
        lost_one = lock("1").take(0)
        visitor.redis.client().delete("lock:1")
        with suppress(LockLost):
            lost_one.release()
        with lock("1"):
            pass
        for _ in range(2):
            lock("1", timeout=0.2, renew=False, reentrant=False).take(0)
            eventually(lambda: info("1").state is State.OVER)
        yield visitor.press("dismiss", "1", post="yes")
        for _ in range(9):
            lock("1", shared=True, reentrant=False).take(0)
        ask(lock("1").attempt(), waits=True)
        yield visitor.see("1")
        yield visitor.client.get(past)
        with lock("2"):
            pass
        yield visitor.see("2")
        for asked in ("&end=lost", "&q=zzz", "&end=dismissed&q=zzz", "&before=1-1"):
            yield visitor.client.get(past + asked)
        visitor.patch.setattr(history, "_PER_PAGE", 2)
        yield visitor.client.get(HISTORY)
        yield visitor.client.get(HISTORY + "?end=forced")
        visitor.patch.setattr(clock, "now", count(0, 60).__next__)
        yield visitor.see("99")


def what_is_kept_of_holds(visitor: Visitor) -> Iterator[Any]:
    for changed in ({}, {"HISTORY": "all"}, {"HISTORY": None}, {"INDEX": False}):
        with override_settings(SETNX_LOCK=changed):
            yield visitor.client.get(HISTORY)
            yield visitor.see("1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inspector, "has_history", False)
        yield visitor.client.get(HISTORY)
    visitor.patch.setattr(Inspector, "history", failing("denied"))
    yield visitor.client.get(HISTORY)
    yield visitor.see("1")


def those_who_wait(visitor: Visitor) -> Iterator[Any]:
    graph = reverse("admin:django_setnx_lock_lock_graph")
    yield visitor.client.get(graph)
    make = partial(told, label="zzz")
    pairs = [("", "1"), ("3", "1"), ("3", "2"), ("4", "3")]
    with waiting(get_client(), ("1", "2"), *pairs, make=make, shared=True):
        yield visitor.client.get(graph)
        visitor.patch.setattr(pages, "NAMED", 1)
        yield visitor.see("1")
        yield visitor.see("3")
        visitor.patch.setattr(wait_graph, "MOST", 2)
        yield visitor.client.get(graph)


PAGES: list[Page] = [
    lists,
    lists_in_each_order,
    a_list_of_more_than_are_looked_at,
    a_search_that_goes_on,
    caches_to_choose_from,
    readers_of_whom_one_is_gone,
    each_lock,
    questions,
    wrong_forms,
    what_was_done,
    what_was_not_done,
    many_released,
    problems,
    locked_actions,
    release_of_selected,
    locked_views,
    the_index_of_the_admin,
    past_holds,
    what_is_kept_of_holds,
    those_who_wait,
]


# What was asked for while a page was made, to make each of them once.
ASKED: dict[Page, set[str]] = {}
ONE_PROCESS = pytest.mark.xdist_group("translations")


@ONE_PROCESS
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__name__)
def test_no_text_of_a_page_is_left_out(visitor: Visitor, catalogue: Marked, page: Page) -> None:
    seen = list(page(visitor))
    ASKED[page] = catalogue.asked

    assert seen
    assert [words for one in seen if (words := unmarked_on(one))] == []


# Texts that no page shows: times of days, pages that are not found, a form field, where nothing is
# listed, and a deadlock, as one of it is refused.
NEVER_SHOWN = {
    "%d d",
    "A deadlock: it waits for itself.",
    "There is no django-redis cache %(name)r.",
    "No lock's name begins so.",
    "Metrics of distributed locks",
    "name",
}


@ONE_PROCESS
def test_each_marked_text_is_on_one_of_the_pages(
    catalogue: Marked, admin_client: Client, fake_server: FakeServer
) -> None:
    # Those of which no test before has told: only then it is known what no page at all showed.
    for page in PAGES:
        if page in ASKED:
            continue
        # No transaction, to whose end the locks would be held.
        fake_server.flush()
        Group.objects.all().delete()
        with pytest.MonkeyPatch.context() as patch:
            list(page(Visitor(admin_client, fake_server, patch)))

    texts = catalogue.asked.union(*ASKED.values())
    asked = {text.rpartition(trans_real.CONTEXT_SEPARATOR)[2] for text in texts}
    assert {message.ids[0] for message in marked()} - asked == NEVER_SHOWN


@pytest.mark.parametrize(
    "template",
    sorted((PACKAGE / "templates").rglob("*.html")),
    ids=lambda path: path.relative_to(PACKAGE / "templates").as_posix(),
)
def test_no_text_of_a_template_is_left_out(template: Any) -> None:
    assert unmarked_in_template(template.read_text("utf-8")) == []


@pytest.mark.parametrize("one", INTERVENTIONS, ids=lambda one: one.page)
def test_the_texts_of_an_intervention_are_translated_when_they_are_shown(one: Any) -> None:
    texts = (one.title, one.name, one.question, one.consequences, one.confirmation, one.unsure)

    assert [text for text in (*texts, one.noted, *one.told.values()) if _is_fixed(text)] == []


def _is_fixed(text: object) -> bool:
    return not isinstance(text, Promise)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<p>Hello {{ name }}</p>", ["Hello"]),
        ('<p title="Hello">{% translate "Hello" %}</p>', ["Hello"]),
        ('<input type="submit" value="Go">', ["Go"]),
        ("{% blocktranslate %}One{% plural %}Two{% endblocktranslate %} three", ["three"]),
        ('{# Hello #}<p class="hello" id="hello">{{ hello }} 5 &rsaquo;</p>', []),
    ],
)
def test_an_unmarked_text_of_a_template_is_found(source: str, words: list[str]) -> None:
    assert unmarked_in_template(source) == words


def test_an_unmarked_text_on_a_page_is_found(visitor: Visitor) -> None:
    lock("1", user="ann").take(0)
    visitor.patch.setattr(pages, "moment", lambda at: "half past ten")

    found = unmarked_on(visitor.client.get(LIST))

    assert [one.partition(" ")[0] for one in found] == ["half", "past", "ten"]
