"""An app of Celery whose tasks tell, in a database of Redis, what they do. Workers run it."""

from __future__ import annotations

import os
import time
from typing import Any

import django
import redis
from celery import Celery
from django.conf import settings

from django_setnx_lock import lock
from django_setnx_lock.contrib.celery import locked_task

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
if __name__ == "__main__" or not settings.configured:
    django.setup()

app = Celery("shop", set_as_current=True)
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=1,
    result_expires=60,
)


def places(url: str) -> dict[str, str]:
    """Return where messages and results are, on the server at ``url``, which ends in a database."""
    server = url.rpartition("/")[0]
    return {"broker_url": f"{server}/1", "result_backend": f"{server}/2"}


def diary(of: Celery = app) -> redis.Redis:
    return redis.Redis.from_url(of.conf.result_backend.rpartition("/")[0] + "/3")


def note(key: str, what: str) -> None:
    diary().rpush(key, what)


def work(key: str, seconds: float = 0.0) -> None:
    """Tell of the beginning and the end; until told to go on, or for so many seconds."""
    note(key, "begin")
    if seconds < 0:
        diary().blpop([f"go:{key}"], timeout=20)
    else:
        time.sleep(seconds)
    note(key, "end")


@locked_task("order:<key>", busy_countdown=0.2, name="shop.retried")
def retried(key: str, seconds: float = 0.0) -> str:
    work(key, seconds)
    return "done"


@locked_task("order:<key>", on_busy="skip", name="shop.skipped")
def skipped(key: str) -> str:
    work(key)
    return "done"


# Sent again when the process that is at work has died.
LATE: dict[str, Any] = {
    "busy_countdown": 0.2,
    "acks_late": True,
    "reject_on_worker_lost": True,
    "lock_options": {"timeout": 2},
}


def die_once(key: str) -> str:
    work(key)
    if diary().set(f"died:{key}", 1, nx=True):
        os.kill(os.getpid(), 9)
    return "done"


@locked_task("order:<key>", on_busy="skip", name="shop.skipped_late", **LATE)
def skipped_late(key: str) -> str:
    return die_once(key)


@locked_task("order:<key>", name="shop.late", **LATE)
def late(key: str) -> str:
    return die_once(key)


@locked_task("order:<key>", lock_options={"blocking_timeout": 20}, name="shop.waits")
def waits(key: str, seconds: float = 0.0) -> str:
    work(key, seconds)
    return "done"


@app.task(name="shop.unlocked")  # type: ignore[untyped-decorator]  # Celery ships no types
def unlocked(key: str, seconds: float) -> str:
    work(key, seconds)
    return "done"


@locked_task("order:<key>", name="shop.loses")
def loses(key: str) -> str:
    held_by = lock(f"order:{key}")
    held_by.client.delete(held_by.name)
    return "done"


if "TEST_WORKER_OF" in os.environ:
    app.conf.update(places(os.environ["TEST_WORKER_OF"]))
