"""The addresses of the lock pages, users with this or that permission, and reading a page."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import quote_plus

from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from django_setnx_lock import inspector
from django_setnx_lock.core import LockInfo

LIST = "/admin/django_setnx_lock/lock/"
HISTORY = f"{LIST}history/"


def address(page: str, name: str) -> str:
    """The address of ``page`` (change or history) of the lock with that Redis name."""
    return reverse(f"admin:django_setnx_lock_lock_{page}", args=[quote(name)])


def staff(*permissions: str) -> Client:
    """A client logged in as a member of staff with just these permissions."""
    user = User.objects.create_user("rob", password="pw", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def info(key: str) -> LockInfo:
    """The lock with that key."""
    return inspector().get(f"lock:{key}")


def boxes(*keys: str) -> list[str]:
    """What the list sends for the locks with these keys, if they are selected now."""
    return [f"{info(key).fingerprint}:lock%3A{quote_plus(key)}" for key in keys]


def choose(client: Client, page: str, *chosen: str, filters: str = "", **fields: str) -> Any:
    """Choose holders, each as its box sends it, for ``page`` (release or stop): a question."""
    asked = {"_selected_action": list(chosen), **fields}
    return client.post(f"{LIST}{page}/?_changelist_filters={quote_plus(filters)}", asked)


def confirm(client: Client, question: Any, **fields: Any) -> Any:
    """Send the form of the question; return the page that it leads to."""
    page = question.content.decode()
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', page)
    (action,) = re.findall(r'<form method="post" action="([^"]+)"', page)
    form = {"post": "yes", "seen": seen, "holder": ticked(page), **fields}
    return client.post(html.unescape(action), form, follow=True)


def ticked(page: str) -> list[str]:
    """Which holders of the question are chosen, of several."""
    return re.findall(r'name="holder" value="(\d+)" checked', page)


def press(client: Client, page: str, key: str, **fields: str) -> Any:
    """Do that to the present holders of a lock: choose them, and confirm it."""
    return confirm(client, choose(client, page, *boxes(key)), **fields)


def entries_of(model: type[Model]) -> list[LogEntry]:
    """What the admin's log has of objects of that kind, in the order of writing."""
    kind = ContentType.objects.get_for_model(model)
    return list(LogEntry.objects.filter(content_type=kind).order_by("pk"))


def refuse_entries(*names: str) -> None:
    """Have the database refuse what the admin's log would have of objects called so."""
    called = ", ".join(f"'{name}'" for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER refusing BEFORE INSERT ON django_admin_log "
            f"WHEN NEW.object_repr IN ({called}) BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )


def text(response: Any) -> str:
    """What the page says, without its tags."""
    page = response.content.decode()
    main = page[page.index('<div id="content"') : page.index("<!-- END Content -->")]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def keys(response: Any) -> list[str]:
    """The keys in the list, from top to bottom."""
    links = re.findall(r'class="field-key"><a [^>]*>(.*?)</a>', response.content.decode())
    return [html.unescape(link) for link in links]


def row(response: Any, key: str) -> str:
    """What the list says in the row of that key."""
    for found in re.findall(r"<tr[^>]*>(.*?)</tr>", response.content.decode(), re.DOTALL):
        words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", found)).split())
        if words.startswith(f"{key} "):
            return words
    raise AssertionError(f"no row of {key!r} on the page")


def messages(response: Any) -> list[str]:
    """What the admin told the user, each with its level."""
    return [f"{message.level_tag}: {message.message}" for message in response.context["messages"]]
