"""The core that is built beside today's: ``SETNX_CORE=next`` has the contract suite run on it.

So do tests of the way in of Django: those of ``lock()``, of the settings and of transactions.

Programs that tests start have it by importing ``tests``, after all that patches what it imports,
and tell their :func:`core_of` to who started them. They do not import pytest, which takes long.

What it does not have yet is said here, and nowhere else: kinds and files that are left out, and
rows that have to fail.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from tests.support.kinds import Kind

IS_CHOSEN = os.environ.get("SETNX_CORE") == "next"
CHOSEN = "next" if IS_CHOSEN else "old"
# What is run besides tests/contract.
BESIDES = (
    "tests/admin/",
    "tests/admin/test_edit_interleavings.py",
    "tests/admin/test_model_admin_transactions.py",
    "tests/admin/test_model_admin.py",
    "tests/contrib/",
    "tests/example_project/",
    "tests/faults/",
    "tests/legacy/",
    "tests/management/commands/test_with_lock",
    "tests/management/test_",
    "tests/postgres/",
    "tests/redis/test_async_connections.py",
    "tests/redis/test_client_classes.py",
    "tests/redis/test_cluster.py",
    "tests/redis/test_cluster_async.py",
    "tests/redis/test_cluster_cache.py",
    "tests/redis/test_cluster_check.py",
    "tests/redis/test_cluster_failover.py",
    "tests/redis/test_cluster_moving.py",
    "tests/redis/test_connections.py",
    "tests/redis/test_exclusion.py",
    "tests/redis/test_fairness.py",
    "tests/redis/test_redlock.py",
    "tests/redis/test_sentinel.py",
    "tests/redis/test_sentinel_failover.py",
    "tests/redis/test_sentinel_planned.py",
    "tests/redis/test_sentinel_restart.py",
    "tests/redis/test_sentinel_storm.py",
    "tests/redis/test_shared_storm.py",
    "tests/redis/test_vanished_server.py",
    "tests/redis/test_beside_redis_py.py",
    "tests/redis/test_replicas.py",
    "tests/redis/test_timestamp.py",
    "tests/test_atomic_requests.py",
    "tests/test_conf.py",
    "tests/test_decorators.py",
    "tests/test_decorators_views.py",
    "tests/test_doors.py",
    "tests/test_error_pages.py",
    "tests/test_errors.py",
    "tests/test_greenlets.py",
    "tests/test_history.py",
    "tests/test_labels.py",
    "tests/test_locks.py",
    "tests/test_logging.py",
    "tests/test_moving_from_cache_lock.py",
    "tests/test_redlock.py",
    "tests/test_signals.py",
    "tests/test_transactions.py",
    "tests/test_transactions_testcase.py",
    "tests/test_views_lost.py",
    "tests/testing/",
    "tests/views/",
)
KINDS = {"exclusive", "readers", "permits", "several", "hosted", "timestamp", "redlock"}
# Files and tests that are left out, and what comes before they can run.
FILES = {
    "test_a_client_of_asyncio_is_refused": "no more: several masters are asked in asyncio, too",
    "test_a_wait_outlasts_a_restart_that_its_client_outlasts": "no more: it has our retry alone",
    "test_of_each_that_was_taken_with_others": "no more: they are taken one after the other",
    "test_a_lock_that_waits_to_be_taken_over_has_no_process_that_must_live": "transfer",
    "test_what_a_holder_waits_for_itself_is_told": "deadlock",
    # WAIT is sent when the lock was granted.
    "test_a_busy_answer_counts_though_the_connection_breaks_behind_it": "no more",
    "test_bytes_that_are_no_text_are_a_clear_error_for_a_client_that_decodes": "no more",
    "test_several_masters_have_no_asyncio": "no more: they are asked in asyncio, too",
    "test_whatever_is_awaited_is_refused_and_the_lock_stays_held": "no more: the same",
}
# Files of what that core alone has.
ITS_OWN = {"test_call_limits", "test_later_releases"}
# Rows that fail: words that are in their ids, and what comes before they can pass.
NOT_YET = {
    # Where locks are in no list, their process says nowhere that it lives.
    "test_a_holder_that_renews_after_the_last_look_keeps_the_lock hosted": "liveness",
    "test_a_holder_that_is_as_dead_as_it_was_seen_or_more_loses_the_lock hosted": "liveness",
    # The mark that somebody of a loop's mailbox is awake stands beside that, for half a second.
    "test_no_key_is_outside_of_the_slot_of_its_name exclusive-asyncio": "a mailbox for each slot",
    "test_no_key_is_outside_of_the_slot_of_its_name readers-asyncio": "a mailbox for each slot",
    "test_no_key_is_outside_of_the_slot_of_its_name permits-asyncio": "a mailbox for each slot",
    "test_no_key_is_outside_of_the_slot_of_its_name several-asyncio": "a mailbox for each slot",
    "test_the_hash_tag_of_a_name_is_the_locks_own asyncio": "a mailbox for each slot",
    "test_no_log_tells_a_token": "the docs of it",
    "test_a_user_with_the_documented_rights_can_do_it_all": "the docs of it",
}


def put_in_place() -> None:
    """Have ``django_setnx_lock.core`` give the new classes to who imports them from now on."""
    if not IS_CHOSEN:
        return
    core: Any = import_module("django_setnx_lock.core")
    coming: Any = import_module("django_setnx_lock.core.next")
    for name in coming.__all__:
        setattr(core, name, getattr(coming, name))
    # The way in of Django has what differs from one core to another from one module.
    door: Any = import_module("django_setnx_lock.lock_core_coming")
    door.choose()
    signals: Any = import_module("django_setnx_lock.signals")
    signals.RedisLock = core.RedisLock


def core_of(lock: type) -> str:
    """Return the core that the class ``lock``, as this process uses it, is of."""
    coming = "django_setnx_lock.core.next."
    return "next" if any(one.__module__.startswith(coming) for one in lock.__mro__) else "old"


def program(code: str) -> str:
    """Return ``code``, to be run with ``-c``, so that it has the core that is chosen, or fails.

    That is seen to where it first imports the package, which is at the beginning of a line.
    """
    before, first, after = code.partition("from django_setnx_lock")
    return f"""{before}
import tests
from django_setnx_lock.core import RedisLock
from tests.support.next_core import core_of
assert core_of(RedisLock) == {CHOSEN!r}, core_of(RedisLock)
{first}{after}"""


def say(client: Any, lock: type) -> None:
    """Tell those who started this process, at ``client``'s server, which core ``lock`` is of."""
    client.sadd("cores", core_of(lock))


def said(client: Any) -> set[str]:
    """Return the cores that processes said they have."""
    return {one.decode() for one in client.smembers("cores")}


def is_chosen_for(item: pytest.Item) -> bool:
    return IS_CHOSEN and item.nodeid.startswith(("tests/contract/", *BESIDES))


def leaves_out(item: pytest.Item) -> bool:
    """Return whether ``item`` is of a kind, or in a file, that this core does not have."""
    if not is_chosen_for(item):
        return item.path.stem in ITS_OWN
    params = item.callspec.params if hasattr(item, "callspec") else {}
    kind: Kind | None = params["a"][0] if "a" in params else None
    names = {item.path.stem, getattr(item, "originalname", "")}
    return bool(names & set(FILES)) or (kind is not None and kind.name not in KINDS)


def mark(item: pytest.Item) -> None:
    """Have a row fail that is not there yet, and one pass that today's core is marked for."""
    if not is_chosen_for(item):
        return
    import pytest

    item.own_markers = [one for one in item.own_markers if one.name != "xfail"]
    for words, why in NOT_YET.items():
        if all(word in item.nodeid for word in words.split()):
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"not yet: {why}"))
