"""The named mutants: what each rule of the code is for, and the test that fails without it.

A rule stands once in its file. What is put in its place breaks what the name says, and nothing that
another rule would make good. ``killed_by`` is a test that `make test` runs.
"""

from __future__ import annotations

from typing import NamedTuple

SCRIPTS = "core/protocol/scripts"
COMING_CORE = "core/next"
COMING_SCRIPTS = f"{COMING_CORE}/protocol/scripts"
CONTRACT, WIRE, FAULTS = "tests/contract", "tests/wire", "tests/faults"
ADMIN = "tests/admin"


class Mutant(NamedTuple):
    """``instead`` in the place of ``rule`` in ``file``, a path below the package."""

    name: str
    file: str
    rule: str
    instead: str
    killed_by: str


TAKING = [
    Mutant(
        "a taken lock is refused",
        f"{SCRIPTS}/acquire.lua",
        "if value and value ~= token and not claims then",
        "if false then",
        f"{CONTRACT}/test_exclusion.py::test_nobody_else_has_it_while_it_is_held",
    ),
    Mutant(
        "a lock that was handed on is for that waiter alone",
        f"{SCRIPTS}/acquire.lua",
        "local claims = value == BATON .. token",
        "local claims = value and string.sub(value, 1, #BATON) == BATON",
        f"{CONTRACT}/test_waiting.py::test_nobody_overtakes_who_waits",
    ),
    Mutant(
        "a free lock goes to the first who waits",
        f"{SCRIPTS}/acquire.lua",
        "if head and head ~= token then",
        "if false then",
        f"{CONTRACT}/test_waiting.py::test_a_lock_that_vanished_goes_to_who_waits_for_it",
    ),
    Mutant(
        "a token that was let go takes the lock no more",
        f"{SCRIPTS}/acquire.lua",
        "is_mine = redis.call('EXISTS', WAITERS, ALIVE, TOMBSTONE) == 0",
        "is_mine = redis.call('EXISTS', WAITERS, ALIVE) == 0",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
    Mutant(
        "a copy that finds its own token has the lock",
        f"{SCRIPTS}/acquire.lua",
        "if value and value ~= token and not claims then",
        "if value and not claims then",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "a late copy of what took a lock never shortens its lease",
        f"{SCRIPTS}/acquire.lua",
        "lease = math.max(lease, redis.call('PTTL', NAME))",
        "",
        f"{CONTRACT}/test_network.py::"
        "test_a_copy_of_what_took_the_lock_that_comes_late_cuts_nothing",
    ),
    Mutant(
        "a later fence is larger though the clock was stepped back",
        f"{SCRIPTS}/acquire.lua",
        "if last and tonumber(last) >= tonumber(fence) then",
        "if false then",
        f"{WIRE}/test_fences.py::test_a_fence_is_larger_than_one_of_a_clock_that_ran_ahead",
    ),
    Mutant(
        "a caller that gives up leaves the queue",
        f"{SCRIPTS}/acquire.lua",
        "    leave_queue(token)\n    if slice == 0 then",
        "    if slice == 0 then",
        f"{CONTRACT}/test_waiting.py::test_who_gives_up_is_not_waited_for",
    ),
    Mutant(
        "a caller that gives up is remembered",
        f"{SCRIPTS}/acquire.lua",
        "redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)\n    end",
        "\n    end",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_answer_busy_takes_no_lock",
    ),
    Mutant(
        "a late copy that is refused changes nothing that is known of its token",
        f"{SCRIPTS}/acquire.lua",
        "elseif not is_gone then",
        "else",
        f"{WIRE}/test_memory.py::test_a_release_sent_again_is_no_loss_although_a_copy_of_the_acquire_came_between",
    ),
    Mutant(
        "a waiter that would sleep beyond a shorter lease is woken",
        f"{SCRIPTS}/acquire.lua",
        "wake_if_later(lease)\nif INDEX",
        "if INDEX",
        f"{WIRE}/test_handover_leases.py::"
        "test_a_waiter_that_would_sleep_beyond_the_end_of_a_shorter_lease_is_woken",
    ),
    Mutant(
        "a held lock has an end",
        f"{SCRIPTS}/acquire.lua",
        "redis.call('SET', NAME, token, 'PX', ARGV[2])",
        "redis.call('SET', NAME, token)",
        f"{CONTRACT}/test_exclusion.py::test_what_stands_at_the_name_ends_with_the_lease",
    ),
    Mutant(
        "a lock is listed",
        f"{SCRIPTS}/acquire.lua",
        "redis.call('ZADD', INDEX, whole(math.floor(fence / 1000) + ARGV[2]), NAME)",
        "",
        f"{CONTRACT}/test_footprint.py::"
        "test_a_lock_that_is_not_renewed_is_listed_too_until_it_is_released",
    ),
    Mutant(
        "the holder record stands beside the lock",
        f"{SCRIPTS}/acquire.lua",
        "redis.call('SET', META, fence .. ARGV[3], 'PX', whole(ARGV[2] + META_MARGIN))",
        "redis.call('SET', META, fence .. ' 1 x {}', 'PX', whole(ARGV[2] + META_MARGIN))",
        f"{CONTRACT}/test_exclusion.py::test_the_holder_is_named_to_who_finds_it_busy",
    ),
    Mutant(
        "who loses a lock to the next is remembered",
        f"{SCRIPTS}/acquire.lua",
        "  note_lost(meta, owner)\n",
        "",
        f"{WIRE}/test_lost_replies.py::test_a_release_that_comes_again_after_the_loss_says_so",
    ),
    Mutant(
        "of several keys all are taken or none",
        f"{SCRIPTS}/acquire_all.lua",
        "if replies[1] == 'NO' and tonumber(ARGV[5]) <= 0 then",
        "if false then",
        f"{CONTRACT}/test_exclusion.py::test_of_several_keys_all_are_had_or_none",
    ),
    Mutant(
        "several keys are taken in the order of their names",
        "core/locks/batch.py",
        "sorted(dict.fromkeys(locks), key=lambda lock: lock.name)",
        "list(dict.fromkeys(locks))",
        f"{CONTRACT}/test_several.py::test_callers_in_opposite_order_do_not_wait_for_each_other",
    ),
    Mutant(
        "a lease counts from before the request was sent",
        "core/locks/attempt.py",
        "deadline=since + seconds,",
        "deadline=clock.now() + seconds,",
        f"{FAULTS}/test_slow_answers.py::test_of_a_lock_that_was_taken",
    ),
    Mutant(
        "a grant that came too late is given back",
        "core/locks/attempt.py",
        "            await self.cancel(io)\n        return self.settle",
        "            pass\n        return self.settle",
        f"{CONTRACT}/test_network.py::test_a_grant_that_comes_when_its_lease_is_over_is_given_back",
    ),
    Mutant(
        "a wait ends with the caller's time",
        "core/locks/mailbox.py",
        "        seconds = min(seconds, left)\n",
        "        pass\n",
        f"{CONTRACT}/test_waiting.py::test_nobody_waits_for_longer_than_told",
    ),
    Mutant(
        "a wait goes on when its connections break twice",
        "core/locks/mailbox.py",
        "if self._failures and error.cause not in _BROKEN:",
        "if self._failures:",
        f"{FAULTS}/test_waiting_outages.py::"
        "test_a_wait_goes_on_however_soon_its_connection_is_cut_again",
    ),
    Mutant(
        "a circle of waiters is told from a wait that has ended",
        f"{SCRIPTS}/nesting.lua",
        "  return alive and tonumber(alive) >= now and ask(",
        "  return true or ask(",
        f"{CONTRACT}/test_deadlocks.py::test_a_wait_that_ended_is_no_part_of_a_deadlock",
    ),
]

LETTING_GO = [
    Mutant(
        "no order of events frees what somebody else was given",
        f"{SCRIPTS}/cancel.lua",
        "local given = value == token or head == token",
        "local given = true",
        f"{WIRE}/test_machine.py::test_no_order_of_events_breaks_the_lock",
    ),
    Mutant(
        "a release compares the token",
        f"{SCRIPTS}/release.lua",
        "local is_mine = redis.pcall('GET', NAME) == ARGV[1]",
        "local is_mine = true",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_the_next_holder_of_ours",
    ),
    Mutant(
        "a release wakes the next",
        f"{SCRIPTS}/release.lua",
        "  local head = hand_on()\n  if not head then",
        "  local head = false\n  if not head then",
        f"{CONTRACT}/test_waiting.py::test_who_sleeps_is_woken_by_a_release",
    ),
    Mutant(
        "a lost lock that is free is handed on by who finds it so",
        f"{SCRIPTS}/release.lua",
        "if head == token or not value then\n  head = hand_on()",
        "if false then\n  head = hand_on()",
        f"{WIRE}/test_handover_passing.py::test_a_holder_that_lost_its_lock_hands_on_what_is_free",
    ),
    Mutant(
        "a release that was sent twice is no loss",
        f"{SCRIPTS}/release.lua",
        "if mark == 'released' then",
        "if false then",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "a release whose copy finds another holder is no loss",
        f"{SCRIPTS}/release.lua",
        "if ARGV[2] == 'again' then",
        "if false then",
        f"{CONTRACT}/test_network.py::test_a_release_whose_copy_finds_the_next_holder_was_one",
    ),
    Mutant(
        "a token that was let go is remembered",
        f"{SCRIPTS}/release.lua",
        "  if ARGV[2] ~= 'once' then\n    redis.call('SET', TOMBSTONE, 'released', 'PX', MEMORY)\n"
        "  end\n  if INDEX",
        "  if INDEX",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
    Mutant(
        "a token whose lock was found lost takes it no more",
        f"{SCRIPTS}/release.lua",
        "  redis.pcall('SET', TOMBSTONE, mark, 'PX', MEMORY)\n",
        "",
        f"{WIRE}/test_late_copies.py::"
        "test_a_request_that_arrives_after_its_lock_was_found_lost_takes_no_lock",
    ),
    Mutant(
        "a released lock is listed no more",
        f"{SCRIPTS}/release.lua",
        "  if INDEX then\n    redis.call('ZREM', INDEX, NAME)\n  end\n  return {'OK', false}",
        "  return {'OK', false}",
        f"{CONTRACT}/test_footprint.py::"
        "test_a_lock_that_is_not_renewed_is_listed_too_until_it_is_released",
    ),
    Mutant(
        "min_hold keeps the name taken",
        f"{SCRIPTS}/release.lua",
        "  if left > 0 then\n",
        "  if false then\n",
        f"{CONTRACT}/test_releasing.py::test_with_min_hold_nobody_has_it_before_its_time",
    ),
    Mutant(
        "a name that min_hold keeps taken is no holder's token",
        f"{SCRIPTS}/release.lua",
        "local kept = KEPT .. ARGV[1]",
        "local kept = ARGV[1]",
        f"{WIRE}/test_late_copies_kept.py::test_no_late_copy_frees_it_or_keeps_it_for_longer",
    ),
    Mutant(
        "min_hold wakes who would sleep beyond it",
        f"{SCRIPTS}/release.lua",
        "again > now_ms() + left then",
        "false then",
        f"{CONTRACT}/test_releasing.py::test_a_waiter_has_it_when_min_hold_is_over",
    ),
    Mutant(
        "a cancelled attempt leaves the lock free",
        f"{SCRIPTS}/cancel.lua",
        "local given = value == token or head == token",
        "local given = head == token",
        f"{CONTRACT}/test_cancellation.py::test_a_block_that_is_cancelled_anywhere_leaves_nothing",
    ),
    Mutant(
        "a cancelled waiter hands on what it was given",
        f"{SCRIPTS}/cancel.lua",
        "local given = value == token or head == token",
        "local given = value == token",
        f"{WIRE}/test_handover_passing.py::"
        "test_who_gives_up_what_was_left_to_it_leaves_it_to_the_next",
    ),
    Mutant(
        "a cancelled attempt frees nobody else's lock",
        f"{SCRIPTS}/cancel.lua",
        "local given = value == token or head == token",
        "local given = true",
        f"{CONTRACT}/test_cancellation.py::"
        "test_a_wait_in_vain_that_is_cancelled_anywhere_leaves_no_place",
    ),
    Mutant(
        "a cancelled attempt is remembered",
        f"{SCRIPTS}/cancel.lua",
        "  redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)\n",
        "",
        f"{WIRE}/test_late_copies.py::"
        "test_a_request_that_arrives_after_it_was_given_up_takes_no_lock",
    ),
    Mutant(
        "a cancelled waiter leaves the queue",
        f"{SCRIPTS}/cancel.lua",
        "leave_queue(token)\n",
        "",
        f"{CONTRACT}/test_cancellation.py::"
        "test_a_wait_in_vain_that_is_cancelled_anywhere_leaves_no_place",
    ),
    Mutant(
        "a cancelled waiter hands on a lock that is free",
        f"{SCRIPTS}/cancel.lua",
        "if given or not value then\n  head = hand_on()",
        "if given then\n  head = hand_on()",
        f"{WIRE}/test_handover_passing.py::test_who_gives_up_finds_a_lock_that_is_free_for_the_others",
    ),
    Mutant(
        "a ticket is good for one",
        f"{SCRIPTS}/swap.lua",
        "redis.call('SET', NAME, ARGV[2], 'KEEPTTL')",
        "",
        f"{CONTRACT}/test_releasing.py::test_a_lock_is_given_away_with_its_fence",
    ),
    Mutant(
        "the last of several handles releases",
        "core/locks/grant.py",
        "if self.owner is None and self._is_alone(handle):",
        "if True:",
        f"{CONTRACT}/test_reentrancy.py::test_the_last_who_lets_go_releases_it_whichever_that_is",
    ),
    Mutant(
        "a lost lock raises at the end of its block",
        "core/locks/operations.py",
        "    if body_error is None and to_raise:\n        raise error\n",
        "",
        f"{CONTRACT}/test_releasing.py::test_the_end_of_a_block_says_that_the_lock_was_lost",
    ),
    Mutant(
        "a loss hides no error of the block",
        "core/locks/operations.py",
        "    if body_error is None and to_raise:\n",
        "    if to_raise:\n",
        f"{CONTRACT}/test_releasing.py::test_the_end_of_a_block_hides_no_error_of_its_body",
    ),
    Mutant(
        "a waiter that is interrupted leaves nothing",
        "core/connections/backends.py",
        "            await clean_up()\n\n\ndef patience",
        "            clean_up().close()\n\n\ndef patience",
        f"{CONTRACT}/test_interrupts.py::test_a_waiter_that_is_interrupted_at_any_step_is_not_waited_for",
    ),
    Mutant(
        "a task that is cancelled as it waits leaves nothing",
        "core/connections/backends.py",
        "            await shield(clean_up, patience(client))",
        "            clean_up().close()",
        f"{CONTRACT}/test_waiting.py::test_a_task_that_is_cancelled_as_it_waits_is_not_waited_for",
    ),
]

THE_QUEUE = [
    Mutant(
        "a waiter that does not fetch the lock is passed over",
        f"{SCRIPTS}/look.lua",
        "elseif owner == head and has_mail(head) then",
        "elseif false then",
        f"{WIRE}/test_handover_look.py::test_a_lock_that_is_not_fetched_goes_to_the_next",
    ),
    Mutant(
        "a waiter that fetched the lock keeps it",
        f"{SCRIPTS}/look.lua",
        " and has_mail(head)",
        "",
        f"{WIRE}/test_handover_look.py::test_a_lock_that_was_fetched_is_left_to_who_fetched_it",
    ),
    Mutant(
        "a waiter that is passed over keeps its place",
        f"{SCRIPTS}/look.lua",
        "redis.call('ZADD', WAITERS, rank, head)",
        "redis.call('ZADD', WAITERS, rank + 1e9, head)",
        f"{WIRE}/test_handover_look.py::test_who_was_passed_over_keeps_its_place",
    ),
    Mutant(
        "behind another program the next is woken to ask on",
        f"{SCRIPTS}/look.lua",
        "wake_if_later(-1)",
        "",
        f"{WIRE}/test_handover_look_others.py::"
        "test_behind_a_foreign_holder_the_next_is_woken_to_ask_on",
    ),
    Mutant(
        "the next looks where nobody else will",
        f"{SCRIPTS}/look.lua",
        "if owner and ARGV[2] == '1' then",
        "if false then",
        f"{WIRE}/test_handover_look_others.py::test_when_nobody_will_look_again_the_next_waiter_does",
    ),
    Mutant(
        "a waiter that asks no more is dropped",
        f"{SCRIPTS}/prelude.lua",
        "if alive and alive >= now_ms() then\n      return token",
        "if alive then\n      return token",
        f"{WIRE}/test_handover_queue.py::test_waiters_who_ask_no_more_are_skipped_and_dropped",
    ),
    Mutant(
        "a queue ends by itself",
        f"{SCRIPTS}/prelude.lua",
        "redis.call('PEXPIRE', key, slice + ALIVE_MARGIN + AHEAD)",
        "redis.call('PERSIST', key)",
        f"{WIRE}/test_handover_queue.py::test_a_queue_lives_for_longer_than_any_waiter_may_sleep",
    ),
    Mutant(
        "who came first stands first",
        f"{SCRIPTS}/prelude.lua",
        "rank = math.max(now_us(), (last or 0) + 1)",
        "rank = -now_us()",
        f"{CONTRACT}/test_waiting.py::test_who_came_first_has_it_first",
    ),
    Mutant(
        "who comes later is later though the clock was stepped back",
        f"{SCRIPTS}/prelude.lua",
        "rank = math.max(now_us(), (last or 0) + 1)",
        "rank = now_us()",
        f"{WIRE}/test_handover_queue.py::"
        "test_who_comes_later_is_later_although_the_clock_of_the_server_stepped_back",
    ),
    Mutant(
        "who asks again keeps its place",
        f"{SCRIPTS}/prelude.lua",
        "if not rank then\n    local last",
        "if true then\n    local last",
        f"{WIRE}/test_handover_queue.py::test_asking_again_keeps_the_place_in_the_queue",
    ),
    Mutant(
        "a late copy takes back nothing that a waiter was told",
        f"{SCRIPTS}/prelude.lua",
        "asks_again = math.max(asks_again, recorded or 0)",
        "",
        f"{WIRE}/test_handover_leases.py::"
        "test_a_copy_that_comes_late_takes_back_nothing_a_waiter_was_told",
    ),
    Mutant(
        "who leaves passes on that a lease is shorter",
        f"{SCRIPTS}/prelude.lua",
        "if left >= 0 then",
        "if false then",
        f"{WIRE}/test_handover_leases.py::test_who_leaves_passes_on_that_the_next_lease_is_shorter",
    ),
    Mutant(
        "a waiting thread is woken",
        f"{SCRIPTS}/prelude.lua",
        "if redis.call('LPUSH', box, 1) > 1 then",
        "if true then\n    return\n  end\n  if redis.call('LPUSH', box, 1) > 1 then",
        f"{CONTRACT}/test_waiting.py::test_who_sleeps_is_woken_by_a_release",
    ),
    Mutant(
        "a waiting task is woken",
        f"{SCRIPTS}/prelude.lua",
        "    redis.call('ZADD', box, now_ms(), token)\n",
        "",
        f"{CONTRACT}/test_waiting.py::test_who_sleeps_is_woken_by_a_release",
    ),
    Mutant(
        "what is no lock at the name is left alone",
        f"{SCRIPTS}/prelude.lua",
        "return type(value) == 'table' and '' or value",
        "return type(value) ~= 'table' and value",
        f"{WIRE}/test_other_types.py::test_no_request_changes_what_stands_at_the_name",
    ),
]

HOLDING = [
    Mutant(
        "a renewal compares the token",
        f"{SCRIPTS}/renew.lua",
        "if token_at(NAME) ~= ARGV[1] then",
        "if false then",
        f"{CONTRACT}/test_losses.py::test_a_loss_is_found_by_the_renewal",
    ),
    Mutant(
        "a renewal never shortens",
        f"{SCRIPTS}/renew.lua",
        "local lease = math.max(left, ARGV[2] + 0)",
        "local lease = ARGV[2] + 0",
        f"{CONTRACT}/test_network.py::test_an_extension_that_comes_late_cuts_nothing",
    ),
    Mutant(
        "a renewal keeps the record as long as the lock",
        f"{SCRIPTS}/renew.lua",
        "grow(META, lease + META_MARGIN)",
        "",
        f"{WIRE}/test_fences.py::test_fence_and_record_outlast_the_lease_however_it_is_extended",
    ),
    Mutant(
        "a check compares the token",
        f"{SCRIPTS}/check.lua",
        "if redis.pcall('GET', NAME) == ARGV[1] then",
        "if true then",
        f"{CONTRACT}/test_losses.py::test_whatever_the_holder_asks_says_that_the_lock_was_lost",
    ),
    Mutant(
        "a lock is renewed before its lease ends",
        "core/renewal/lease.py",
        "self.due = end - seconds * 2 / 3",
        "self.due = end + seconds",
        f"{CONTRACT}/test_renewals.py::test_a_lock_is_renewed_for_as_long_as_it_is_held",
    ),
    Mutant(
        "many locks are renewed in few writes",
        "core/renewal/scheduler.py",
        "_BATCH = 250",
        "_BATCH = 1",
        f"{CONTRACT}/test_renewals.py::test_hundreds_of_locks_take_few_round_trips",
    ),
    Mutant(
        "a renewed lease counts from before the request was sent",
        "core/renewal/requests.py",
        "lease.confirm(sent, int(reply[1]) / 1000)",
        "lease.confirm(now, int(reply[1]) / 1000)",
        f"{FAULTS}/test_slow_answers.py::test_of_one_that_was_renewed",
    ),
    Mutant(
        "an extended lease counts from before the request was sent",
        "core/locks/handle.py",
        "self.lease.confirm(sent, int(reply[1]) / 1000)",
        "self.lease.confirm(clock.now(), int(reply[1]) / 1000)",
        f"{FAULTS}/test_slow_answers.py::test_of_one_that_was_extended",
    ),
    Mutant(
        "a lock whose lease is over by the local clock is lost",
        "core/renewal/scheduler.py",
        "if now >= end:",
        "if False:",
        f"{CONTRACT}/test_losses.py::"
        "test_a_lock_that_cannot_be_renewed_is_lost_before_anybody_else_has_it",
    ),
    Mutant(
        "a lock whose thread or task has ended is renewed no longer",
        "core/locks/grant.py",
        "return self._taken_by is not None and self._taken_by.has_ended",
        "return False",
        f"{CONTRACT}/test_leases.py::"
        "test_what_a_thread_or_task_held_as_it_ended_is_renewed_no_longer",
    ),
    Mutant(
        "a task under a lost lock is cancelled",
        "core/locks/grant.py",
        "self._cancel_tasks()\n        # Whatever",
        "# Whatever",
        f"{CONTRACT}/test_losses.py::test_the_block_of_a_task_ends_when_its_lock_is_lost",
    ),
    Mutant(
        "the loss takes the place of the cancellation that it made",
        "core/locks/cancel_scope.py",
        "        if others or not isinstance(error, asyncio.CancelledError):\n",
        "        if True:\n",
        f"{CONTRACT}/test_losses.py::test_the_block_of_a_task_ends_when_its_lock_is_lost",
    ),
    Mutant(
        "a cancellation from outside stays one",
        "core/locks/cancel_scope.py",
        "        if others or not isinstance(error, asyncio.CancelledError):\n",
        "        if not isinstance(error, asyncio.CancelledError):\n",
        f"{CONTRACT}/test_blocks.py::"
        "test_a_cancellation_from_outside_that_meets_the_loss_stays_one",
    ),
    Mutant(
        "a task that finds the loss itself is not cancelled",
        "core/locks/cancel_scope.py",
        "if self._has_cancelled or self._is_over or asyncio.current_task() is self.task:",
        "if self._has_cancelled or self._is_over:",
        f"{CONTRACT}/test_blocks.py::"
        "test_a_block_that_finds_the_loss_itself_is_not_cancelled_besides",
    ),
    Mutant(
        "a lock object forgets what it has lost",
        "core/locks/local.py",
        "            if not one.is_block and (one.held.is_let_go or one.held.lost):\n",
        "            if False:\n",
        f"{CONTRACT}/test_blocks.py::test_an_object_whose_leases_run_out_forgets_them",
    ),
    Mutant(
        "who waits for several keys asks again before the lease of those that are held ends",
        "core/locks/multi_lock.py",
        "return self._lease / 3 if self._taken else math.inf",
        "return math.inf",
        f"{CONTRACT}/test_several.py::"
        "test_what_is_held_early_outlives_its_lease_and_is_whole_in_the_end",
    ),
    Mutant(
        "the same name in another database is another lock",
        "core/locks/reentrancy.py",
        "_may_be_had(grant) and server_id(grant.client) == place:",
        "_may_be_had(grant):",
        f"{CONTRACT}/test_holding_again.py::"
        "test_another_client_of_the_same_database_is_the_same_lock",
    ),
    Mutant(
        "a loss is told to who asked for it",
        "core/locks/grant.py",
        "                rest.callback(one.tell_loss)\n",
        "                pass\n",
        f"{CONTRACT}/test_losses.py::test_a_loss_is_told_once",
    ),
    Mutant(
        "after a fork the child has nothing",
        "core/locks/handle.py",
        "return self.grant.pid == os.getpid()",
        "return True",
        f"{CONTRACT}/test_processes.py::test_a_forked_child_holds_nothing",
    ),
    Mutant(
        "a process that was forked begins anew",
        "core/process.py",
        "    if pid == _pid:\n        return\n    with",
        "    if True:\n        return\n    with",
        f"{CONTRACT}/test_processes.py::test_what_a_forked_child_takes_is_renewed_there",
    ),
    Mutant(
        "sibling tasks do not share a lock",
        "core/locks/owner.py",
        "    found = _tasks.get(task)\n",
        "    found = next(iter(_tasks.values()), None)\n",
        f"{CONTRACT}/test_reentrancy.py::test_another_thread_or_task_does_not_have_it_again",
    ),
    Mutant(
        "a child thread does not share the lock of its parent",
        "core/locks/owner.py",
        "if owner is None or owner.strand is None or not owner.strand.is_running():",
        "if owner is None or owner.strand is None:",
        f"{CONTRACT}/test_reentrancy.py::"
        "test_no_child_thread_has_it_again_by_a_copy_of_the_context",
    ),
    Mutant(
        "who reads and would write is told",
        "core/locks/reentrancy.py",
        "    if reads and not target.command_set.is_shared:\n",
        "    if False:\n",
        f"{CONTRACT}/test_reentrancy.py::"
        "test_a_reader_who_wants_to_write_is_told_that_it_waits_for_itself",
    ),
    Mutant(
        "errors of redis-py become LockUnavailable",
        "core/connections/failures.py",
        "        raise unavailable(error, key) from error",
        "        raise",
        f"{FAULTS}/test_outages.py::test_every_operation_on_a_server_that_is_down_ends_in_the_one_error",
    ),
    Mutant(
        "a script that was flushed is sent again",
        "core/connections/execute.py",
        "if isinstance(reply, redis_exceptions.NoScriptError):\n            if then",
        "if False:\n            if then",
        f"{CONTRACT}/test_network.py::test_scripts_that_the_server_forgot_are_sent_again",
    ),
    Mutant(
        "what a server that hangs carries out later is undone behind it",
        "core/connections/execute.py",
        "is_undone = undo is not None and connection.send_behind(_in_full_once(undo()))",
        "is_undone = False",
        f"{FAULTS}/test_stalls.py::test_no_key_is_left_that_nobody_holds",
    ),
    Mutant(
        "no token stands in an error report",
        "core/connections/failures.py",
        "    error.__traceback__ = None\n    cause = error",
        "    cause = error",
        "tests/test_error_pages.py::test_the_technical_error_page_shows_no_token",
    ),
    Mutant(
        "a ticket is not shown",
        "core/locks/transfer.py",
        "    text: str = field(repr=False)\n",
        "    text: str\n",
        f"{CONTRACT}/test_transfer.py::"
        "test_no_frame_of_a_lock_that_was_not_taken_over_shows_the_ticket",
    ),
]

OPERATORS = [
    Mutant(
        "a release by force compares the holder that was seen",
        f"{SCRIPTS}/force.lua",
        "if value ~= ARGV[2] or",
        "if",
        f"{CONTRACT}/test_operators.py::"
        "test_who_takes_it_while_the_release_by_force_is_under_way_keeps_it",
    ),
    Mutant(
        "a release by force compares the fingerprint",
        "core/lock_info.py",
        "(one for one in holders if one.fingerprint == fingerprint)",
        "(one for one in holders)",
        f"{CONTRACT}/test_operators.py::test_nobody_but_the_holder_that_was_seen_is_forced_out",
    ),
    Mutant(
        "a holder that lives again keeps its lock",
        "core/inspection.py",
        "        if SEVERITY.get(seen.state, 0) < severity:\n            return Outcome.REVIVED\n",
        "",
        "tests/admin/test_interventions.py::"
        "test_a_holder_that_lives_again_keeps_its_lock_and_is_shown_anew",
    ),
    Mutant(
        "what is found by a state is taken from holders in that state",
        "admin/confirming.py",
        "if share.info.state.slug == state]",
        "]",
        "tests/admin/test_interventions.py::"
        "test_what_is_found_by_a_state_is_taken_from_the_holders_in_that_state",
    ),
    Mutant(
        "who was forced out learns by whom",
        f"{SCRIPTS}/force.lua",
        "redis.call('SET', TOMBSTONE, ARGV[1], 'PX', keep)",
        "",
        f"{CONTRACT}/test_operators.py::test_who_was_forced_out_learns_by_whom_and_why",
    ),
    Mutant(
        "a release by force wakes the next",
        f"{SCRIPTS}/force.lua",
        "  head = hand_on()\nend)",
        "end)",
        f"{CONTRACT}/test_operators.py::test_a_waiter_follows_who_was_forced_out",
    ),
    Mutant(
        "a holder hears that it is asked to stop",
        f"{SCRIPTS}/stopping.lua",
        "reply[3] = string.match(known, '{.*')",
        "",
        f"{CONTRACT}/test_operators.py::test_who_is_asked_to_stop_hears_of_it_once",
    ),
    Mutant(
        "a holder is asked to stop once",
        f"{SCRIPTS}/requesting.lua",
        "  if string.find(record, STOP, 1, true) then\n",
        "  if false then\n",
        f"{CONTRACT}/test_operators.py::test_who_is_asked_to_stop_hears_of_it_once",
    ),
    Mutant(
        "a copy of a request to stop is as good as the first",
        f"{SCRIPTS}/requesting.lua",
        "1, true) and NOTED or NOTED_BEFORE",
        "1, true) and NOTED_BEFORE or NOTED_BEFORE",
        f"{WIRE}/test_stop_requests.py::test_a_copy_of_a_request_is_as_good_as_the_first",
    ),
    Mutant(
        "hostile text is escaped",
        "core/plain.py",
        'return found[0].encode("unicode_escape").decode()',
        "return found[0]",
        f"{WIRE}/test_plain.py::test_what_could_do_more_than_be_read_is_escaped",
    ),
    Mutant(
        "locks check tells of a lock that is held for too long",
        "management/locks/checking.py",
        "if limit is not None and value > limit:",
        "if False:",
        "tests/management/commands/test_check.py::test_a_lock_that_is_held_for_long",
    ),
    Mutant(
        "locks check looks at every lock",
        "management/locks/checking.py",
        'look.all(search=options["search"], everything=everything)',
        'look.all(search=options["search"], everything=everything)[:1]',
        "tests/management/commands/test_check.py::"
        "test_all_locks_are_looked_at_however_many_there_are",
    ),
]

OTHER_KINDS = [
    Mutant(
        "no more permits than the limit",
        f"{SCRIPTS}/shared.lua",
        "(not limit or redis.call('ZCARD', SHARES) < limit)",
        "true",
        f"{CONTRACT}/test_exclusion.py::test_so_many_are_in_together_as_there_are_permits",
    ),
    Mutant(
        "readers and permits do not mix",
        f"{SCRIPTS}/shared.lua",
        "return group == kind and",
        "return group and",
        f"{CONTRACT}/test_exclusion.py::test_all_kinds_at_one_name_exclude_each_other",
    ),
    Mutant(
        "who comes later joins nobody before those who wait",
        f"{SCRIPTS}/shared_acquire.lua",
        "has_room(group, kind, limit) and not first_waiter()",
        "has_room(group, kind, limit)",
        f"{CONTRACT}/test_waiting.py::test_a_reader_waits_behind_a_writer_that_came_before",
    ),
    Mutant(
        "no order of events lets in two kinds at once",
        f"{SCRIPTS}/shared.lua",
        "return group == kind and",
        "return group and",
        "tests/model/test_shared.py::test_the_scripts_as_shipped_allow_no_violation",
    ),
    Mutant(
        "a share that ran out is free",
        f"{SCRIPTS}/shared.lua",
        "redis.call('ZRANGEBYSCORE', SHARES, '-inf', whole(now_ms()))",
        "{}",
        f"{WIRE}/test_shared.py::test_a_permit_whose_lease_is_over_is_free",
    ),
    Mutant(
        "a share that is returned goes to who waits",
        f"{SCRIPTS}/shared.lua",
        "local given = admit(group)\n  settle(value, last_fence())",
        "local given = false\n  settle(value, last_fence())",
        "tests/model/test_shared.py::test_the_scripts_as_shipped_allow_no_violation",
    ),
    Mutant(
        "the last reader hands on",
        f"{SCRIPTS}/shared.lua",
        "    local head = hand_on()\n    if was then",
        "    local head = false\n    if was then",
        f"{WIRE}/test_shared.py::test_the_last_reader_leaves_it_to_the_writer",
    ),
    Mutant(
        "the first reader lets in those behind it",
        f"{SCRIPTS}/shared_acquire.lua",
        "given = admit(group) or given",
        "given = given",
        f"{WIRE}/test_shared.py::test_all_readers_up_to_the_next_writer_are_let_in_at_once",
    ),
    Mutant(
        "readers behind a writer that gives up are woken",
        f"{SCRIPTS}/prelude.lua",
        "group_at(token_at(NAME)) and -1 or left",
        "left",
        f"{WIRE}/test_shared.py::test_so_does_one_whose_time_to_wait_is_over",
    ),
    Mutant(
        "the name stands until the last share is over",
        f"{SCRIPTS}/shared.lua",
        "redis.call('PEXPIREAT', NAME, whole(ends))",
        "do end",
        f"{WIRE}/test_shared.py::test_the_name_is_taken_for_as_long_as_the_longest_lease",
    ),
    Mutant(
        "a share is released by its holder alone",
        f"{SCRIPTS}/shared_release.lua",
        "if group and redis.call('ZREM', SHARES, token) == 1 then",
        "if group then",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_the_next_holder_of_ours",
    ),
    Mutant(
        "a share that was released twice is no loss",
        f"{SCRIPTS}/shared_release.lua",
        "if mark == 'released' then",
        "if false then",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "a renewed share never ends sooner",
        f"{SCRIPTS}/shared_renew.lua",
        "math.max(ends - now_ms(), ARGV[2] + 0)",
        "ARGV[2] + 0",
        f"{CONTRACT}/test_network.py::test_an_extension_that_comes_late_cuts_nothing",
    ),
    Mutant(
        "a share that was taken away is lost",
        f"{SCRIPTS}/shared_check.lua",
        "local ends = group_at(value) and redis.call('ZSCORE', SHARES, ARGV[1])",
        "local ends = group_at(value) and now_ms() + 9000",
        f"{CONTRACT}/test_operators.py::test_of_several_holders_one_is_forced_out",
    ),
    Mutant(
        "a share is renewed when memory is used up",
        f"{SCRIPTS}/shared_renew.lua",
        "grow(META, META_MARGIN)\n",
        "",
        f"{CONTRACT}/test_network.py::"
        "test_a_held_lock_is_renewed_and_released_when_memory_is_used_up",
    ),
    Mutant(
        "a share that a dead waiter was left goes to the next",
        f"{SCRIPTS}/shared_look.lua",
        "if rank and has_mail(token) then",
        "if false then",
        f"{WIRE}/test_shared.py::test_a_permit_that_nobody_fetches_is_passed_on",
    ),
    Mutant(
        "a release by force takes the share that was seen",
        f"{SCRIPTS}/shared_force.lua",
        "local ends = group and redis.call('ZSCORE', SHARES, token)",
        "local ends = group and now_ms()",
        f"{CONTRACT}/test_operators.py::"
        "test_who_takes_it_while_the_release_by_force_is_under_way_keeps_it",
    ),
    Mutant(
        "a timestamp that is over is nobody's",
        f"{SCRIPTS}/timestamp.lua",
        "return left > 0 and left",
        "return left",
        f"{WIRE}/test_timestamp_boundaries.py::"
        "test_among_ourselves_a_lock_is_over_at_the_end_of_its_lease",
    ),
    Mutant(
        "a timestamp of another unit is no lock of ours",
        f"{SCRIPTS}/timestamp.lua",
        "return time and time >= EARLIEST and time < LATEST and time or nil",
        "return time",
        f"{WIRE}/test_timestamp.py::test_a_time_in_another_unit_is_called_that",
    ),
    Mutant(
        "others find a timestamp held for the whole of its lease",
        f"{SCRIPTS}/timestamp.lua",
        "whole(math.ceil(ends / MS[unit]))",
        "whole(math.floor(ends / MS[unit]))",
        f"{WIRE}/test_timestamp_boundaries.py::"
        "test_others_find_our_lock_held_for_the_whole_of_its_lease",
    ),
    Mutant(
        "another's timestamp is over when a later unit has begun",
        f"{SCRIPTS}/timestamp.lua",
        "math.floor(ends / MS[unit] + 1) * MS[unit]",
        "ends",
        f"{WIRE}/test_timestamp_boundaries.py::"
        "test_it_is_not_over_for_us_before_it_is_for_its_holder",
    ),
    Mutant(
        "a timestamp is released by its holder alone",
        f"{SCRIPTS}/unqueued_release.lua",
        "if not mark and is_mine(text(redis.pcall('GET', KEYS[1])), known, ARGV[1]) then",
        "if not mark then",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_what_somebody_else_has_taken",
    ),
    Mutant(
        "a timestamp is renewed by its holder alone",
        f"{SCRIPTS}/unqueued_renew.lua",
        "if mark or not is_mine(value, known, token) then",
        "if false then",
        f"{CONTRACT}/test_losses.py::test_a_loss_is_found_by_the_renewal",
    ),
    Mutant(
        "a timestamp is forced from the holder that was seen",
        f"{SCRIPTS}/unqueued_force.lua",
        "if (stands(value, known) and known.token or value) ~= ARGV[2] or baton_for(value) then",
        "if false then",
        f"{CONTRACT}/test_operators.py::"
        "test_who_takes_it_while_the_release_by_force_is_under_way_keeps_it",
    ),
    Mutant(
        "a lock without a queue is refused while it is taken",
        f"{SCRIPTS}/unqueued_acquire.lua",
        "if left and not mine then",
        "if false then",
        f"{CONTRACT}/test_exclusion.py::test_nobody_else_has_it_while_it_is_held",
    ),
    Mutant(
        "a copy that finds its own timestamp has the lock",
        f"{SCRIPTS}/unqueued_acquire.lua",
        "left and is_mine(value, known, token)",
        "false",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "a timestamp that was released twice is no loss",
        f"{SCRIPTS}/unqueued_release.lua",
        "if mark == 'released' then",
        "if false then",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "another who writes the time that was ours has it for himself",
        f"{SCRIPTS}/timestamp.lua",
        "  if known.ends then\n    redis.call('SET', KEYS[2]",
        "  if false then\n    redis.call('SET', KEYS[2]",
        f"{WIRE}/test_timestamp_same_time.py::test_the_other_has_it_for_as_long_as_it_may_mean",
    ),
    Mutant(
        "a timestamp is renewed when memory is used up",
        f"{SCRIPTS}/unqueued_renew.lua",
        "redis.call('PEXPIRE', KEYS[2], whole(ends - now_ms() + META_MARGIN))\n",
        "",
        f"{CONTRACT}/test_network.py::test_a_held_lock_is_renewed_and_released_when_memory_is_used_up",
    ),
    Mutant(
        "without a queue a token that was let go takes the lock no more",
        f"{SCRIPTS}/unqueued_acquire.lua",
        "redis.call('EXISTS', KEYS[3]) == 1",
        "false",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
]

SEVERAL_SERVERS = [
    Mutant(
        "a majority of masters is needed",
        "core/protocol/quorum.py",
        "if len(granted) >= needed:",
        "if granted:",
        f"{WIRE}/test_quorum.py::test_what_the_answers_to_a_taking_come_to",
    ),
    Mutant(
        "a lock that a majority of masters no longer has is lost",
        "core/protocol/quorum.py",
        "if len(lost) > len(replies) - needed:",
        "if False:",
        f"{CONTRACT}/test_redlock.py::test_what_a_majority_no_longer_has_is_lost",
    ),
    Mutant(
        "what the clocks of masters may drift is not relied on",
        "core/locks/redlock.py",
        "ends = sent + seconds - quorum.drift(seconds)",
        "ends = sent + seconds",
        f"{CONTRACT}/test_redlock.py::test_the_drift_of_clocks_is_not_relied_on",
    ),
    Mutant(
        "a taking without a majority leaves nothing",
        "core/locks/redlock.py",
        "        self._give_back(replies)\n",
        "",
        f"{CONTRACT}/test_redlock.py::test_who_gets_a_minority_gives_it_back",
    ),
    Mutant(
        "a grant counts when enough replicas know of it",
        "core/connections/execute.py",
        "if int(acknowledged) < self.count:",
        "if False:",
        "tests/redis/test_replicas.py::test_more_replicas_than_there_are_is_too_few",
    ),
    Mutant(
        "a cluster's slot that moves is waited for",
        "core/connections/cluster.py",
        "        await io.sleep(pause)\n        if broken",
        "        raise cause or AssertionError\n        if broken",
        "tests/redis/test_cluster_moving.py::test_a_release_waits_for_a_slot_that_moves",
    ),
    Mutant(
        "over-long names differ by their hash",
        "core/protocol/keys.py",
        '+ "~" + hashlib.sha256(raw).hexdigest()',
        '+ "~" + "0" * 64',
        f"{WIRE}/test_keys.py::test_two_long_keys_with_one_beginning_never_share_a_name",
    ),
]

DOORS = [
    Mutant(
        "values of a key cannot reach into the next",
        "key_template.py",
        'return quote(str(value), safe="", errors="surrogatepass").replace("~", "%7E")',
        "return str(value)",
        "tests/test_key_template.py::test_two_different_argument_tuples_never_give_one_key",
    ),
    Mutant(
        "equal times are one key",
        "key_template.py",
        "        return value.astimezone(timezone.utc)\n",
        "        return value\n",
        "tests/test_key_template.py::test_an_aware_time_is_written_in_utc",
    ),
    Mutant(
        "an enum member is the key of its value",
        "key_template.py",
        "        value = value.value\n",
        "        return value\n",
        "tests/test_key_template.py::test_an_enum_member_is_its_value",
    ),
    Mutant(
        "a value that has several texts makes no key",
        "key_template.py",
        "    if not isinstance(value, (str, int, UUID, date)) or isinstance(value, datetime):\n",
        "    if False:\n",
        "tests/test_key_template.py::test_a_value_that_may_have_several_texts_or_none_is_refused",
    ),
    Mutant(
        "another spelling of an int makes no key",
        "key_template.py",
        "        if isinstance(value, str) and str(parsed) != value:\n",
        "        if False:\n",
        "tests/test_key_template.py::test_another_spelling_of_an_int_is_refused_with_its_own",
    ),
    Mutant(
        "a lock outlives the transaction around it",
        "transactions.py",
        "        if not around:\n            return False\n        if held.is_again",
        "        if True:\n            return False\n        if held.is_again",
        "tests/test_transactions.py::test_what_is_let_go_in_a_transaction_is_held_until_its_commit",
    ),
    Mutant(
        "a lost lock refuses the commit",
        "transactions.py",
        '        self._check()\n        self._call("commit")',
        '        self._call("commit")',
        "tests/test_transactions.py::test_what_was_lost_before_the_commit_is_rolled_back",
    ),
    Mutant(
        "a rollback releases what waits for the transaction",
        "transactions.py",
        '        self._call("rollback")\n        self.has_ended()',
        '        self._call("rollback")',
        "tests/test_transactions.py::test_without_autocommit_the_end_by_hand_releases",
    ),
    Mutant(
        "a view under ATOMIC_REQUESTS begins its transaction under the lock",
        "decorators.py",
        "        leave_to_lock(wrapper)\n",
        "",
        "tests/test_atomic_requests.py::"
        "test_a_request_that_finds_the_lock_busy_begins_no_transaction",
    ),
    Mutant(
        "a busy view answers 409",
        "views.py",
        "return Failure(409,",
        "return Failure(200,",
        "tests/views/test_failure_view.py::"
        "test_a_busy_answer_is_409_with_whole_seconds_in_retry_after",
    ),
    Mutant(
        "a view that loses its lock is rolled back before it answers",
        "decorators.py",
        "                        check_all(around)\n",
        "                        pass\n",
        "tests/test_atomic_requests.py::"
        "test_a_request_whose_lock_was_lost_is_rolled_back_and_answered",
    ),
    Mutant(
        "a loss in the transaction of somebody else is raised",
        "decorators.py",
        "if not _is_of(error, one) or is_rolled_back_by_an_error():",
        "if not _is_of(error, one):",
        "tests/test_atomic_requests.py::"
        "test_a_view_that_lost_its_lock_in_the_block_of_its_caller_raises_and_so_rolls_that_back",
    ),
    Mutant(
        "methods that are not named run without the lock",
        "decorators.py",
        "return self.methods is None or request.method in self.methods",
        "return True",
        "tests/views/test_request_lock.py::test_only_the_methods_that_are_named_run_under_the_lock",
    ),
    Mutant(
        "a view has its handle at the request",
        "decorators.py",
        "    http.lock = held\n",
        "    http.lock = None\n",
        "tests/views/test_request_lock.py::test_the_handle_is_at_the_request_while_the_view_runs",
    ),
    Mutant(
        "a visitor who has not logged in has no key of the user",
        "decorators.py",
        'if getattr(user, "is_anonymous", False):',
        "if False:",
        "tests/views/test_request_lock.py::"
        "test_a_key_of_the_user_forbids_a_visitor_who_has_not_logged_in",
    ),
    Mutant(
        "a callable may give several keys",
        "decorators.py",
        "made if isinstance(made, (list, tuple)) else [made]",
        "made[:1] if isinstance(made, (list, tuple)) else [made]",
        "tests/test_decorators.py::test_a_callable_may_give_several_keys_of_what_it_is_called_with",
    ),
    Mutant(
        "the middleware answers what a service raises",
        "middleware.py",
        "return failed(request, exception) if isinstance(exception, ANSWERED) else None",
        "return None",
        "tests/views/test_middleware.py::test_an_error_of_a_lock_is_answered_wherever_it_is_raised",
    ),
    Mutant(
        "a 503 of a lock mails nobody",
        "middleware.py",
        "        response._has_been_logged = True\n",
        "        pass\n",
        "tests/views/test_middleware.py::"
        "test_a_503_is_logged_once_with_its_cause_and_mailed_to_nobody",
    ),
    Mutant(
        "a response that streams keeps the lock that it is to keep",
        "decorators.py",
        "    close, rest = response.close, stack.pop_all()\n",
        "    close, rest = response.close, ExitStack()\n",
        "tests/views/test_mixin.py::"
        "test_a_response_is_rendered_or_sent_under_the_lock_where_that_is_asked_for",
    ),
    Mutant(
        "a view does not wait unless it is told to",
        "decorators.py",
        '        options.setdefault("blocking_timeout", 0)\n',
        "",
        "tests/test_decorators_views.py::"
        "test_every_kind_of_view_answers_409_at_once_while_its_lock_is_held",
    ),
    Mutant(
        "a stale fence writes nothing",
        "contrib/fencing/fences.py",
        '**{f"{name}__lte": fence.number}',
        "",
        "tests/contrib/fencing/test_models.py::test_a_stale_save_is_refused",
    ),
    Mutant(
        "a deleted row is not made again by a stale save",
        "contrib/fencing/models.py",
        "if stored is not None or (not self._state.adding and self._belongs_to(using)):",
        "if stored is not None:",
        "tests/contrib/fencing/test_models.py::"
        "test_a_row_that_was_deleted_meanwhile_is_not_made_again",
    ),
    Mutant(
        "a row that a replica gave belongs to its primary",
        "contrib/fencing/models.py",
        "return using in (self._state.db, written_to)",
        "return using == self._state.db",
        "tests/contrib/fencing/test_replica_router.py::"
        "test_a_stale_save_does_not_make_a_deleted_row_again",
    ),
    Mutant(
        "a claim stores the fence before it reads",
        "contrib/fencing/models.py",
        '            fence.store(base, field.name, f"{self.model._meta.label} {pk}")\n',
        "",
        "tests/contrib/fencing/test_claims.py::test_after_a_claim_an_earlier_holder_cannot_write",
    ),
    Mutant(
        "a handle that is known to be lost writes nothing",
        "contrib/fencing/fences.py",
        "if self.held is not None and self.held.lost and self.held.is_here:",
        "if False:",
        "tests/contrib/fencing/test_lost.py::test_a_handle_that_is_known_to_be_lost_writes_nothing",
    ),
    Mutant(
        "the types of a template are no part of the label",
        "key_template.py",
        'return _TYPE.sub(">", self.text)',
        "return self.text",
        "tests/test_labels.py::test_one_lock_is_one_label_through_each_door",
    ),
    Mutant(
        "what was made of the settings is forgotten when they change",
        "conf.py",
        'if setting in (SETTING, "CACHES", "INSTALLED_APPS"):',
        "if False:",
        "tests/test_conf.py::test_a_setting_is_read_when_a_lock_is_made",
    ),
    Mutant(
        "the clients of caches are forgotten when these change",
        "conf.py",
        'if setting in (SETTING, "CACHES", "INSTALLED_APPS"):',
        'if setting in (SETTING, "INSTALLED_APPS"):',
        "tests/test_conf.py::test_caches_that_have_changed_are_found_anew_in_every_thread",
    ),
    Mutant(
        "settings that change while they are read are not kept",
        "conf.py",
        "known = Known()\n\n\nsetting",
        "known.__init__()\n\n\nsetting",
        "tests/test_conf.py::test_settings_that_change_while_they_are_read_are_not_kept",
    ),
    Mutant(
        "a client that the project's own classes choose is asked for each time",
        "connection.py",
        "if is_always_the_same(alias):",
        "if True:",
        "tests/test_conf.py::test_a_client_class_may_choose_the_server_each_time",
    ),
    Mutant(
        "an option that does not exist is refused with what is meant",
        "options.py",
        "if name not in cls.__dataclass_fields__:",
        "if False:",
        "tests/test_locks.py::test_what_an_option_cannot_be_is_refused_at_once_and_at_decoration",
    ),
    Mutant(
        "on the core to come, a release in a transaction is left to its end",
        "transactions.py",
        "if around and grant.is_here and not grant.is_over:",
        "if False:",
        "tests/test_transactions.py::test_what_is_let_go_in_a_transaction_is_held_until_its_commit",
    ),
    Mutant(
        "on the core to come, what is had again is left to its transaction, too",
        f"{COMING_CORE}/locks/layered.py",
        "return target.handle(grant, target)",
        "return SharedHandle(grant, target)",
        "tests/test_transactions.py::"
        "test_what_was_had_again_waits_for_the_transaction_in_which_it_is_let_go",
    ),
    Mutant(
        "a lock with until_commit=False is let go before the commit",
        "locks.py",
        '"ending": AT_COMMIT if chosen(options.until_commit, "UNTIL_COMMIT") else None,',
        '"ending": AT_COMMIT,',
        "tests/test_transactions.py::"
        "test_a_lock_is_free_before_the_commit_where_it_or_the_setting_says_so",
    ),
    Mutant(
        "a child of with_lock has its parent's lock",
        "core/locks/parent_process.py",
        "return bool(_entries)",
        "return False",
        f"{CONTRACT}/test_started_under.py::"
        "test_it_has_the_lock_again_and_leaving_it_releases_nothing",
    ),
    Mutant(
        "with_lock kills what its command leaves behind",
        "management/with_lock/guard.py",
        "send([signal.SIGKILL], {os.getpid()}, self._main)",
        "pass",
        "tests/management/test_guard.py::"
        "test_the_command_and_all_that_it_started_are_dead_within_a_second",
    ),
    Mutant(
        "a command dies with its guard",
        "management/with_lock/guard.py",
        "if _prctl(_PDEATHSIG, signal.SIGKILL) and os.getppid() != guard:",
        "if os.getppid() != guard:",
        "tests/management/test_descendants.py::"
        "test_when_both_are_killed_at_once_the_command_itself_dies",
    ),
    Mutant(
        "what a command starts while it is signalled gets the signal too",
        "management/with_lock/guard.py",
        "if is_last or among_others <= stopped:",
        "if True:",
        "tests/management/test_descendants.py::"
        "test_what_is_started_while_the_command_is_signalled_gets_the_signal_too",
    ),
    Mutant(
        "the guard is no shell that could continue what Ctrl-Z has stopped",
        "management/with_lock/guard.py",
        "os.setsid()",
        "os.setpgid(0, 0)",
        "tests/management/test_terminal.py::"
        "test_where_no_shell_could_continue_it_ctrl_z_does_nothing",
    ),
    Mutant(
        "what is typed before there is a command comes to it",
        "management/with_lock/guard.py",
        "            os.kill(pid, number)\n",
        "            pass\n",
        "tests/management/test_matrix.py::"
        "test_a_key_that_is_typed_before_there_is_a_command_comes_to_it",
    ),
    Mutant(
        "what is typed comes to a command once",
        "management/with_lock/supervisor.py",
        " or (signum in _TYPED and self._child.status is None)",
        "",
        "tests/management/test_matrix.py::"
        "test_a_key_that_is_typed_as_the_command_begins_comes_to_it_once",
    ),
    Mutant(
        "what a command leaves behind is adopted",
        "management/with_lock/guard.py",
        "        adopt_orphans()\n",
        "",
        "tests/management/test_descendants.py::"
        "test_nobody_gets_the_lock_before_the_last_descendant_is_gone",
    ),
]

EDITING = [
    Mutant(
        "a form whose lease is over cannot overwrite a newer edit",
        "admin/model_admin.py",
        "editing.seen != self._state(request, row)",
        "False",
        f"{ADMIN}/test_model_admin.py::"
        "test_a_form_whose_lease_is_over_cannot_overwrite_a_newer_edit",
    ),
    Mutant(
        "without Redis the row itself is locked while it is compared and saved",
        "admin/model_admin.py",
        "using(using).select_for_update()",
        "using(using)",
        "tests/postgres/test_editing.py::"
        "test_of_several_who_save_at_once_without_redis_one_has_saved",
    ),
    Mutant(
        "a second person cannot save",
        "admin/model_admin.py",
        "editing.refusal = editing.busy",
        "pass",
        f"{ADMIN}/test_model_admin.py::test_the_second_person_cannot_save_and_keeps_what_was_typed",
    ),
    Mutant(
        "who is taken from is told, and does not take it back",
        "admin/model_admin.py",
        "if by and not is_asked:",
        "if False:",
        f"{ADMIN}/test_model_admin.py::"
        "test_a_lock_that_was_force_released_is_not_taken_again_by_the_open_form",
    ),
    Mutant(
        "an open form extends the lock of its own user alone",
        "admin/model_admin.py",
        'at = f"form:{request.user.pk}:{key}"',
        'at = f"form:{key}"',
        f"{ADMIN}/test_model_admin.py::test_the_lease_of_somebody_else_is_not_extended",
    ),
    Mutant(
        "an action skips rows that somebody edits",
        "admin/change_list.py",
        "locked = locked_action(self.lock_key, using=self.lock_using)(func)",
        "locked = func",
        f"{ADMIN}/test_model_admin.py::test_deleting_many_skips_rows_that_somebody_edits",
    ),
    Mutant(
        "a lock that is lost while a form is saved rolls back",
        "admin/model_admin.py",
        "if editing and editing.held:\n        editing.held.check()",
        "if False:\n        pass",
        f"{ADMIN}/test_model_admin.py::"
        "test_a_lock_that_is_lost_while_it_is_saved_rolls_back_and_keeps_what_was_typed",
    ),
    Mutant(
        "a list does not overwrite what changed after it was shown",
        "admin/change_list.py",
        "(now is None or _is_stale(form, now))",
        "now is None",
        f"{ADMIN}/test_model_admin.py::"
        "test_a_row_of_the_list_that_changed_after_it_was_shown_is_not_overwritten",
    ),
]
# The rules of waiting and giving are those of tests/model/runs.py, which has mutants of its own.
COMING = [
    Mutant(
        "to come: nothing is granted where the fence has another type",
        f"{COMING_SCRIPTS}/acquire.lua",
        "      redis.call('DEL', NAME)\n      return last",
        "      return last",
        f"{WIRE}/test_next_scripts.py::test_nothing_is_granted_where_the_fence_has_another_type",
    ),
    Mutant(
        "to come: the index is a hint",
        f"{COMING_SCRIPTS}/lib.lua",
        "redis.pcall('ZADD', INDEX, whole(ends), NAME) == 1",
        "redis.call('ZADD', INDEX, whole(ends), NAME) == 1",
        f"{WIRE}/test_next_scripts.py::"
        "test_a_lock_is_had_and_let_go_whatever_is_in_the_place_of_its_index",
    ),
    Mutant(
        "to come: what others wrote in the place of a waiter is none",
        f"{COMING_SCRIPTS}/lib.lua",
        "        if not alive or alive < now then",
        "        if alive < now then",
        f"{WIRE}/test_next_scripts.py::test_texts_that_others_wrote_break_no_script",
    ),
    Mutant(
        "to come: a mailbox may have any name",
        f"{COMING_SCRIPTS}/lib.lua",
        "string.sub(rest, 1, length)",
        "string.match(rest, '^%S+')",
        f"{WIRE}/test_next_scripts.py::test_a_waiter_for_any_name_is_given_the_lock_at_its_mailbox",
    ),
    Mutant(
        "to come: a holder hears that it is asked to stop",
        f"{COMING_SCRIPTS}/renew.lua",
        "record and string.find(record, ',\"stop\":{', 1, true) and record or nil",
        "nil",
        f"{WIRE}/test_next_scripts.py::test_who_is_asked_to_stop_hears_it_when_it_asks",
    ),
    Mutant(
        "to come: the first request to stop stays",
        f"{COMING_SCRIPTS}/stop.lua",
        "elseif string.find(record, ',\"stop\":{', 1, true) then",
        "elseif false then",
        f"{WIRE}/test_next_scripts.py::test_who_is_asked_to_stop_hears_it_when_it_asks",
    ),
    Mutant(
        "to come: a check changes nothing",
        f"{COMING_SCRIPTS}/renew.lua",
        "if ARGV[2] ~= '-1' and lease > 0 then",
        "if true then",
        f"{WIRE}/test_next_scripts.py::test_a_check_changes_nothing",
    ),
    Mutant(
        "to come: of several, those that were free are let go for one that was not",
        f"{COMING_SCRIPTS}/several.lua",
        "redis.call('DEL', KEYS[2 * before - 1])",
        "",
        f"{WIRE}/test_next_scripts.py::test_several_are_taken_as_far_as_they_go",
    ),
    Mutant(
        "to come: a ticket is good for one",
        f"{COMING_SCRIPTS}/swap.lua",
        "  redis.call('SET', NAME, token, 'KEEPTTL')\n",
        "",
        f"{CONTRACT}/test_releasing.py::test_a_lock_is_given_away_with_its_fence",
    ),
    Mutant(
        "to come: a token that was taken over takes no lock",
        f"{COMING_SCRIPTS}/swap.lua",
        "  refuse(ARGV[1])\n",
        "",
        f"{WIRE}/test_next_scripts.py::test_late_copies_of_a_lock_that_was_taken_over_do_nothing",
    ),
    Mutant(
        "to come: what was taken over in vain is not taken over later",
        f"{COMING_SCRIPTS}/swap.lua",
        "is_gone(token) or ",
        "",
        f"{WIRE}/test_next_scripts.py::test_who_took_a_lock_over_in_vain_has_it_in_no_copy",
    ),
    Mutant(
        "to come: a wait that has ended is no part of a deadlock",
        f"{COMING_SCRIPTS}/deadlock.lua",
        " and is_queued(name, queued) then",
        " then",
        f"{CONTRACT}/test_deadlocks.py::test_a_wait_that_ended_is_no_part_of_a_deadlock",
    ),
    Mutant(
        "to come: of a deadlock one is refused",
        f"{COMING_SCRIPTS}/deadlock.lua",
        "  redis.call('DEL', beside(KEYS[at], 'waits:' .. ARGV[at + 1]))\n",
        "",
        f"{CONTRACT}/test_deadlocks.py::test_exactly_one_of_a_deadlock_is_refused",
    ),
    Mutant(
        "to come: one permit that becomes free is enough",
        f"{COMING_SCRIPTS}/deadlock.lua",
        "staying < (waiter.enough or 1)",
        "staying < 1",
        f"{CONTRACT}/test_deadlocks.py::test_where_a_permit_becomes_free_there_is_no_deadlock",
    ),
    Mutant(
        "to come: who stands before a reader keeps it waiting",
        f"{COMING_SCRIPTS}/deadlock.lua",
        "for at = 0, #queue do",
        "for at = 0, 0 do",
        f"{CONTRACT}/test_deadlocks.py::test_a_reader_behind_a_waiting_writer_is_in_its_deadlock",
    ),
    Mutant(
        "to come: who waits for itself may be helped",
        f"{COMING_SCRIPTS}/deadlock.lua",
        "queued ~= waiter.token and ",
        "",
        f"{CONTRACT}/test_deadlocks.py::test_a_caller_that_waits_for_itself_is_not_refused",
    ),
    Mutant(
        "to come: who is refused for a deadlock leaves the queue",
        f"{COMING_CORE}/locks/attempt.py",
        "type(error) is not LockBusy",
        "not isinstance(error, LockBusy)",
        f"{CONTRACT}/test_deadlocks.py::test_who_is_refused_has_left_the_queue",
    ),
    Mutant(
        "to come: a lock that is held around a process is not released in it",
        f"{COMING_CORE}/locks/parent.py",
        "        for handle in self.held_by():\n            handle.released = True\n",
        "        return super().release_request()\n",
        f"{CONTRACT}/test_started_under.py::"
        "test_it_has_the_lock_again_and_leaving_it_releases_nothing",
    ),
    Mutant(
        "to come: one thread has the lock around a process at a time",
        f"{COMING_CORE}/locks/parent.py",
        "None if is_had or self._pid",
        "None if self._pid",
        f"{CONTRACT}/test_started_under.py::test_one_thread_or_task_has_it_at_a_time",
    ),
    Mutant(
        "to come: a fork has no lock that is held around its parent",
        f"{COMING_CORE}/locks/parent.py",
        "is_had or self._pid != os.getpid() else",
        "is_had else",
        f"{CONTRACT}/test_started_under.py::test_a_fork_has_none_of_it",
    ),
    Mutant(
        "to come: a lock that is held around a process is followed",
        f"{COMING_CORE}/locks/parent.py",
        "        return super().renew_request(-1)",
        "        return super().renew_request(ms)",
        f"{CONTRACT}/test_started_under.py::test_the_lease_is_followed_and_never_lengthened",
    ),
    Mutant(
        "to come: a ticket is not shown",
        f"{COMING_CORE}/locks/transfer.py",
        "    text: str = field(repr=False)\n",
        "    text: str\n",
        f"{CONTRACT}/test_transfer.py::"
        "test_no_frame_of_a_lock_that_was_not_taken_over_shows_the_ticket",
    ),
]
COMING_LOCKS = [
    Mutant(
        "to come: a lock whose release is left to somebody is renewed",
        f"{COMING_CORE}/locks/handle.py",
        "        later = type(self)(self.grant, self.target)\n",
        "        later = type(self)(self.grant, self.target)\n        self.grant.handles = ()\n",
        f"{CONTRACT}/test_later_releases.py::test_it_is_renewed_until_nobody_can_call_that",
    ),
    Mutant(
        "to come: who holds a lock has it again",
        f"{COMING_CORE}/locks/layered.py",
        "return grant if self._is_had_again(grant) else None",
        "return None",
        f"{CONTRACT}/test_reentrancy.py::test_the_holder_has_it_again_by_any_object",
    ),
    Mutant(
        "to come: only the last handle lets the lock go",
        f"{COMING_CORE}/locks/layered.py",
        "if len(grant.handles) > 1 and self._is_followed():",
        "if False:",
        f"{CONTRACT}/test_reentrancy.py::test_the_last_who_lets_go_releases_it_whichever_that_is",
    ),
    Mutant(
        "to come: who reads and wants to write is refused",
        f"{COMING_CORE}/locks/layered.py",
        'if token.startswith("read:") and not self.options.is_shared:',
        "if False:",
        f"{CONTRACT}/test_reentrancy.py::test_a_reader_who_wants_to_write_is_told_that_it_waits_for_itself",
    ),
    Mutant(
        "to come: a task is cancelled when its lock is lost",
        f"{COMING_CORE}/locks/scope.py",
        "            self._has_cancelled = True\n            self.task.cancel(_MESSAGE)\n",
        "            pass\n",
        f"{CONTRACT}/test_blocks.py::test_a_loss_under_two_blocks_is_told_once_by_the_outer_one",
    ),
    Mutant(
        "to come: a with block alone holds on to its handle",
        f"{COMING_CORE}/locks/local.py",
        "        lock.begins[get_ident()] = ref(entry)\n",
        "",
        f"{CONTRACT}/test_interrupts.py::test_an_interrupt_in_the_first_instruction_of_the_end_costs_one_lease",
    ),
    Mutant(
        "to come: several keys are taken in the order of their names",
        f"{COMING_CORE}/locks/several.py",
        "key=lambda lock: lock.name)",
        "key=lambda lock: 0)",
        f"{CONTRACT}/test_several.py::test_callers_in_opposite_order_do_not_wait_for_each_other",
    ),
    Mutant(
        "to come: who waits for one of several keys renews those it holds",
        f"{COMING_CORE}/locks/several.py",
        "return min(longest, self.target.options.lease / 3) if self._at else longest",
        "return longest",
        f"{CONTRACT}/test_several.py::test_what_is_held_early_outlives_its_lease_and_is_whole_in_the_end",
    ),
    Mutant(
        "to come: what stands behind a lost key is let go",
        f"{COMING_CORE}/locks/several.py",
        "unwanted = [*self._several[self._at + 1 : before + 1]]",
        "unwanted: list[Target] = []",
        f"{CONTRACT}/test_several.py::test_who_loses_an_earlier_one_as_it_waits_and_gives_up_leaves_no_place",
    ),
    Mutant(
        "to come: what is renewed is asked for again when the connection broke",
        f"{COMING_CORE}/connections/exchanges.py",
        "if tries == 2 or",
        "if True or",
        f"{CONTRACT}/test_renewals.py::test_a_connection_that_was_closed_meanwhile_is_no_trouble",
    ),
    Mutant(
        "to come: a waiter whose connection broke listens again",
        f"{COMING_CORE}/locks/mailbox.py",
        "            close(connection)\n            self._until = 0.0\n",
        "            close(connection)\n",
        f"{CONTRACT}/test_waiting.py::test_a_wait_goes_on_when_its_connections_break",
    ),
    Mutant(
        "to come: a thread that sleeps is not taken for awake",
        f"{COMING_CORE}/locks/mailbox.py",
        "send_packed_command((listen, packed), check_health=False)\n        self._read()\n",
        "send_packed_command((packed,), check_health=False)\n",
        f"{WIRE}/test_next_connections.py::test_a_thread_that_sleeps_is_not_taken_for_awake",
    ),
    Mutant(
        "to come: a thread listens on while it asks",
        f"{COMING_CORE}/locks/mailbox.py",
        "lasts = max(seconds, 0.01) if is_short else _THREAD_LISTENS_FOR",
        "lasts = max(seconds, 0.01)",
        f"{WIRE}/test_next_connections.py::test_a_thread_listens_on_while_it_asks",
    ),
    Mutant(
        "to come: a waiter sleeps no longer than the lease that it saw",
        f"{COMING_CORE}/locks/attempt.py",
        "max(min(seconds, busy.ms / 1000 + 0.001), 0.001)",
        "seconds",
        f"{WIRE}/test_next_connections.py::"
        "test_a_thread_sleeps_no_longer_than_the_lease_that_it_saw",
    ),
    Mutant(
        "to come: who gives up lets go what it was given",
        f"{COMING_CORE}/locks/attempt.py",
        "            if self.was_retried or type(error) is not LockBusy:\n",
        "            if False:\n",
        f"{WIRE}/test_next_connections.py::"
        "test_who_gives_up_what_it_was_given_has_the_next_have_it",
    ),
    Mutant(
        "to come: who gives up looks whether the next woke",
        f"{COMING_CORE}/locks/attempt.py",
        "                await look(io, self.session, target, reply.value[1])\n",
        "",
        f"{WIRE}/test_next_connections.py::"
        "test_who_gives_up_what_it_was_given_has_the_next_have_it",
    ),
    Mutant(
        "to come: who asks just now is not taken for dead",
        f"{COMING_SCRIPTS}/acquire.lua",
        "  mark_awake(ARGV[5])\n",
        "",
        f"{WIRE}/test_next_scripts.py::test_mail_of_who_asks_just_now_may_lie_unread",
    ),
    Mutant(
        "to come: who was roused is not taken for dead",
        f"{COMING_SCRIPTS}/lib.lua",
        "    wake(box, token)\n    mark_awake(box)\n",
        "    wake(box, token)\n",
        f"{WIRE}/test_next_scripts.py::test_who_was_roused_counts_as_awake_until_it_listens_again",
    ),
    Mutant(
        "to come: what is neither renewed nor on a list asks nothing while it is held",
        f"{COMING_CORE}/locks/grant.py",
        "min(lease / 3, LISTED_AFTER) if is_kept else math.inf",
        "min(lease / 3, LISTED_AFTER)",
        f"{CONTRACT}/test_footprint.py::"
        "test_a_lock_that_is_neither_renewed_nor_on_a_list_asks_nothing_while_it_is_held",
    ),
    Mutant(
        "to come: a waiter that could not listen asks for one limit, not two",
        f"{COMING_CORE}/locks/attempt.py",
        "1 if self._failures else 2",
        "2",
        f"{CONTRACT}/test_call_limits.py::"
        "test_a_waiter_that_cannot_listen_any_more_is_back_after_another_limit",
    ),
    Mutant(
        "to come: a grant that comes too late is none",
        f"{COMING_CORE}/locks/attempt.py",
        "if clock.now() < grant.end:",
        "if True:",
        f"{CONTRACT}/test_network.py::test_a_grant_that_comes_when_its_lease_is_over_is_given_back",
    ),
    Mutant(
        "to come: a connection is closed with its event loop",
        f"{COMING_CORE}/connections/pipe.py",
        "            for one in list(self.closing):\n",
        "            for one in ():\n",
        f"{CONTRACT}/test_renewals.py::test_a_loop_that_ends_leaves_no_connection_and_tells_of_what_is_held",
    ),
    Mutant(
        "to come: a lock that was let go early is kept for its time",
        f"{COMING_CORE}/protocol/scripts/release.lua",
        "rest = math.min(ARGV[3] - (now - math.floor(fence / 1000)), ARGV[3])",
        "rest = 0",
        f"{CONTRACT}/test_min_hold.py::test_what_is_left_is_the_rest_of_min_hold_whatever_the_lease_was",
    ),
    Mutant(
        "to come: a foreign value that looks like a group stays",
        f"{COMING_CORE}/protocol/scripts/lib.lua",
        "if group ~= 'readers' and group ~= 'permits' then",
        "if not group then",
        f"{CONTRACT}/test_exclusion.py::test_what_another_program_holds_is_its_own_whatever_it_wrote_there",
    ),
    Mutant(
        "to come: memory that is used up keeps no renewal away",
        f"{COMING_CORE}/protocol/scripts/lib.lua",
        "  redis.call('PEXPIRE', META, whole(lease + MEMORY))\n",
        "",
        f"{CONTRACT}/test_network.py::test_a_held_lock_is_renewed_and_released_when_memory_is_used_up",
    ),
    Mutant(
        "to come: who lets a lost lock go keeps the one taken since",
        f"{COMING_CORE}/locks/layered.py",
        "if reference is not None and reference() is grant:",
        "if reference is not None:",
        f"{CONTRACT}/test_reentrancy.py::test_who_lets_a_lost_one_go_has_the_one_taken_since_again",
    ),
    Mutant(
        "to come: a waiter whose token is no text breaks no release",
        f"{COMING_CORE}/locks/grant.py",
        "named = text(given).split()",
        "named = given.decode().split() if given else []",
        "tests/wire/test_next_connections.py::test_a_waiter_whose_token_is_no_text_breaks_no_release",
    ),
    Mutant(
        "to come: a block is cancelled at the end of a lease that is not renewed",
        f"{COMING_CORE}/locks/scope.py",
        "renewal_of(grant.session, ASYNCIO).register(grant)",
        "pass",
        f"{CONTRACT}/test_blocks.py::test_a_lease_that_is_over_cancels_the_block",
    ),
    Mutant(
        "to come: two names have two keys",
        f"{COMING_CORE}/locks/several.py",
        "if len(set(called.values())) < len(called):",
        "if False:",
        f"{CONTRACT}/test_options.py::test_two_names_have_two_keys",
    ),
    Mutant(
        "to come: several that are interrupted as they are handed out are refused to a copy",
        f"{COMING_CORE}/locks/attempt.py",
        'self._cancels("doubt" if in_doubt else "cancel", only)',
        'self._cancels("cancel", only)',
        f"{CONTRACT}/test_several.py::"
        "test_a_copy_that_comes_after_an_interrupt_between_two_of_them_takes_none",
    ),
    Mutant(
        "to come: all steps of connecting share one limit",
        f"{COMING_CORE}/connections/connection.py",
        "limit_to(self, self.until - clock.now())\n            return super()",
        "return super()",
        f"{CONTRACT}/test_call_limits.py::"
        "test_all_steps_of_connecting_to_a_slow_server_share_one_limit",
    ),
    Mutant(
        "to come: who waits to be connected does so within the limit",
        f"{COMING_CORE}/connections/pipe.py",
        "await asyncio.wait({opening}, timeout=max(until - clock.now(), 0))",
        "await asyncio.wait({opening})",
        f"{CONTRACT}/test_call_limits.py::test_a_client_that_would_wait_longer_to_be_connected_"
        "waits_no_longer_than_for_answers",
    ),
    Mutant(
        "to come: an address of the host has what is left of the limit",
        f"{COMING_CORE}/connections/connection.py",
        "max(min(limit, connection.until - clock.now()), 0.001)",
        "limit",
        f"{CONTRACT}/test_call_limits.py::test_a_client_that_would_wait_longer_to_be_connected_"
        "waits_no_longer_than_for_answers",
    ),
    Mutant(
        "to come: the connection of a loop ends with its client",
        f"{COMING_CORE}/connections/pipe.py",
        "self._loop.call_soon_threadsafe(self.line.close)",
        "pass",
        "tests/redis/test_async_connections.py::"
        "test_clients_that_are_thrown_away_leave_no_connection_while_the_loop_runs",
    ),
    Mutant(
        "to come: what breaks twice is undone behind each copy",
        f"{COMING_CORE}/connections/exchanges.py",
        "self.undo(line, undo())",
        "pass",
        f"{CONTRACT}/test_network.py::"
        "test_a_server_that_stands_still_and_goes_on_holds_no_lock_of_who_gave_up",
    ),
    Mutant(
        "to come: who was given the lock has it for its lease, not for the claim",
        f"{COMING_CORE}/protocol/scripts/acquire.lua",
        "read_waiter(token) and lease or math.max(lease, left)",
        "math.max(lease, left)",
        "tests/faults/test_killed_holder.py::"
        "test_who_was_given_the_lock_has_it_for_its_lease_however_short",
    ),
    Mutant(
        "to come: of a lock that is had again, the handle comes last",
        f"{COMING_CORE}/locks/layered.py",
        "        return target.handle(grant, target)",
        "        held = target.handle(grant, target)\n"
        "        now = clock.now()\n        return held",
        "tests/faults/test_interrupts_sharing.py::test_no_interrupt_leaks_a_count",
    ),
    Mutant(
        "to come: a handle of several counts as released before the others are counted",
        f"{COMING_CORE}/locks/layered.py",
        "        self.released = True\n"
        "        grant.handles = tuple([ref(handle) for handle in others])",
        "        grant.handles = tuple([ref(handle) for handle in others])\n"
        "        self.released = True",
        "tests/faults/test_interrupts_sharing.py::test_no_interrupt_leaks_a_count",
    ),
    Mutant(
        "to come: an interrupt gives back what several keys were had again by",
        f"{COMING_CORE}/locks/several.py",
        "taken.append(await lock._again(io, by))\n                if taken[-1] is None:",
        "had = await lock._again(io, by)\n"
        "                taken.append(had)\n                if had is None:",
        "tests/faults/test_interrupts_many.py::test_no_interrupt_leaves_a_lock_behind",
    ),
    Mutant(
        "to come: what renews goes on, whatever has ended it",
        f"{COMING_CORE}/locks/renewal.py",
        "        finally:\n            # Whatever has ended it.\n            self._has_ended()",
        "        except ZeroDivisionError:\n            pass\n        self._has_ended()",
        "tests/faults/test_renewal_callbacks.py::"
        "test_a_renewal_that_is_ended_from_outside_begins_again",
    ),
    Mutant(
        "to come: a sub-interpreter ends without the process",
        f"{COMING_CORE}/locks/renewal.py",
        "        renewal.end()",
        "        pass",
        "tests/faults/test_renewal_callbacks.py::test_a_sub_interpreter_ends_without_the_process",
    ),
    Mutant(
        "to come: without the right to ask for the time nothing is taken",
        f"{COMING_CORE}/protocol/scripts/acquire.lua",
        "true) and redis.call('TIME') --",
        "true) and {} --",
        "tests/faults/test_refusals.py::test_a_user_who_lacks_a_right_gets_no_lock",
    ),
    Mutant(
        "to come: a renewal that fails says at which server",
        f"{COMING_CORE}/locks/renewal.py",
        "at = grant.session.where",
        'at = ""',
        "tests/faults/test_renewal_servers.py::test_a_renewal_that_fails_says_at_which_server",
    ),
    Mutant(
        "to come: what connects ends with its loop",
        f"{COMING_CORE}/connections/pipe.py",
        "            self._opening.cancel()\n",
        "            pass\n",
        "tests/faults/test_renewal_servers.py::"
        "test_a_loop_that_ends_beside_a_frozen_server_leaves_no_task",
    ),
    Mutant(
        "to come: programs that tests start have the core that is chosen",
        "../tests/__init__.py",
        "import tests.support  # noqa: F401",
        "pass",
        "tests/contract/test_next_core.py::test_a_program_of_the_tests_has_the_core_that_is_chosen",
    ),
]
MUTANTS: list[Mutant] = [
    *TAKING,
    *LETTING_GO,
    *THE_QUEUE,
    *HOLDING,
    *OPERATORS,
    *OTHER_KINDS,
    *SEVERAL_SERVERS,
    *DOORS,
    *EDITING,
    *COMING,
    *COMING_LOCKS,
]
