"""Where the documentation is published: it is not in the wheel."""

from __future__ import annotations

DOCS = "https://django-setnx-lock.readthedocs.io/en/stable/"


def docs_url(page: str, anchor: str = "") -> str:
    """Return where ``page`` of ``docs`` is to be read, from the heading of ``anchor`` on."""
    return f"{DOCS}{page}.html" + (f"#{anchor.lower()}" if anchor else "")
