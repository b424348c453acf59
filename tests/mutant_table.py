"""The named mutants: what each rule of the code is for, and the test that fails without it.

A rule stands once in its file. What is put in its place breaks what the name says, and nothing that
another rule would make good. ``killed_by`` is a test that `make test` runs.
"""

from __future__ import annotations

from typing import NamedTuple

CORE = "core"
SCRIPTS = f"{CORE}/protocol/scripts"
CONTRACT, WIRE, FAULTS = "tests/contract", "tests/wire", "tests/faults"
ADMIN = "tests/admin"


class Mutant(NamedTuple):
    """``instead`` in the place of ``rule`` in ``file``, a path below the package."""

    name: str
    file: str
    rule: str
    instead: str
    killed_by: str


HOLDING = [
    Mutant(
        "no token stands in an error report",
        "core/connections/failures.py",
        "    _forget_frames(error)\n",
        "",
        "tests/test_error_pages.py::test_the_technical_error_page_shows_no_token",
    ),
]

OPERATORS = [
    Mutant(
        "a release by force compares the fingerprint",
        "core/inspection/inspector.py",
        "(one for one in lock.holders if one.fingerprint == fingerprint)",
        "(one for one in lock.holders)",
        f"{CONTRACT}/test_operators.py::test_nobody_but_the_holder_that_was_seen_is_forced_out",
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


SEVERAL_SERVERS = [
    Mutant(
        "no lock can be called like a key beside another",
        "core/protocol/keys.py",
        "meta|waiters|waiting|alive",
        "meta|waiters|alive",
        f"{CONTRACT}/test_clients.py::test_a_name_that_is_like_a_key_beside_a_lock_is_refused",
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
        "            if around and grant.is_here and not grant.is_over:",
        "            if False:",
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
        "a release in a transaction is left to its end",
        "transactions.py",
        "if around and grant.is_here and not grant.is_over:",
        "if False:",
        "tests/test_transactions.py::test_what_is_let_go_in_a_transaction_is_held_until_its_commit",
    ),
    Mutant(
        "what is had again is left to its transaction, too",
        f"{CORE}/locks/layered.py",
        "return target.handle(grant, target)",
        "return SharedHandle(grant, target)",
        "tests/test_transactions.py::"
        "test_what_was_had_again_waits_for_the_transaction_in_which_it_is_let_go",
    ),
    Mutant(
        "a lock with until_commit=False is let go before the commit",
        "locks.py",
        'until_commit = chosen(options.until_commit, "UNTIL_COMMIT")',
        "until_commit = True",
        "tests/test_transactions.py::"
        "test_a_lock_is_free_before_the_commit_where_it_or_the_setting_says_so",
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
WAITING = [
    Mutant(
        "nothing is granted where the fence has another type",
        f"{SCRIPTS}/acquire.lua",
        "      redis.call('DEL', NAME)\n      return last",
        "      return last",
        f"{WIRE}/test_scripts.py::test_nothing_is_granted_where_the_fence_has_another_type",
    ),
    Mutant(
        "the index is a hint",
        f"{SCRIPTS}/lib.lua",
        "redis.pcall('ZADD', INDEX, whole(ends), NAME) == 1",
        "redis.call('ZADD', INDEX, whole(ends), NAME) == 1",
        f"{WIRE}/test_scripts.py::"
        "test_a_lock_is_had_and_let_go_whatever_is_in_the_place_of_its_index",
    ),
    Mutant(
        "what others wrote in the place of a waiter is none",
        f"{SCRIPTS}/lib.lua",
        "        if not alive or alive < now then",
        "        if alive < now then",
        f"{WIRE}/test_scripts.py::test_texts_that_others_wrote_break_no_script",
    ),
    Mutant(
        "a mailbox may have any name",
        f"{SCRIPTS}/lib.lua",
        "string.sub(rest, 1, length)",
        "string.match(rest, '^%S+')",
        f"{WIRE}/test_scripts.py::test_a_waiter_for_any_name_is_given_the_lock_at_its_mailbox",
    ),
    Mutant(
        "a holder hears that it is asked to stop",
        f"{SCRIPTS}/renew.lua",
        "record and string.find(record, ',\"stop\":{', 1, true) and record or nil",
        "nil",
        f"{WIRE}/test_scripts.py::test_who_is_asked_to_stop_hears_it_when_it_asks",
    ),
    Mutant(
        "the first request to stop stays",
        f"{SCRIPTS}/stop.lua",
        "elseif string.find(record, ',\"stop\":{', 1, true) then",
        "elseif false then",
        f"{WIRE}/test_scripts.py::test_who_is_asked_to_stop_hears_it_when_it_asks",
    ),
    Mutant(
        "a check changes nothing",
        f"{SCRIPTS}/renew.lua",
        "if ARGV[2] ~= '-1' and lease > 0 then",
        "if true then",
        f"{WIRE}/test_scripts.py::test_a_check_changes_nothing",
    ),
    Mutant(
        "of several, those that were free are let go for one that was not",
        f"{SCRIPTS}/several.lua",
        "redis.call('DEL', KEYS[2 * before - 1])",
        "",
        f"{WIRE}/test_scripts.py::test_several_are_taken_as_far_as_they_go",
    ),
    Mutant(
        "a ticket is good for one",
        f"{SCRIPTS}/swap.lua",
        "  redis.call('SET', NAME, token, 'KEEPTTL')\n",
        "",
        f"{CONTRACT}/test_releasing.py::test_a_lock_is_given_away_with_its_fence",
    ),
    Mutant(
        "a token that was taken over takes no lock",
        f"{SCRIPTS}/swap.lua",
        "  refuse(ARGV[1])\n",
        "",
        f"{WIRE}/test_scripts.py::test_late_copies_of_a_lock_that_was_taken_over_do_nothing",
    ),
    Mutant(
        "what was taken over in vain is not taken over later",
        f"{SCRIPTS}/swap.lua",
        "is_gone(token) or ",
        "",
        f"{WIRE}/test_scripts.py::test_who_took_a_lock_over_in_vain_has_it_in_no_copy",
    ),
    Mutant(
        "a wait that has ended is no part of a deadlock",
        f"{SCRIPTS}/deadlock.lua",
        " and is_queued(name, queued) then",
        " then",
        f"{CONTRACT}/test_deadlocks.py::test_a_wait_that_ended_is_no_part_of_a_deadlock",
    ),
    Mutant(
        "of a deadlock one is refused",
        f"{SCRIPTS}/deadlock.lua",
        "  redis.call('DEL', beside(KEYS[at], 'waits:' .. ARGV[at + 1]))\n",
        "",
        "tests/wire/test_deadlock.py::test_what_one_has_found_nobody_else_finds",
    ),
    Mutant(
        "one permit that becomes free is enough",
        f"{SCRIPTS}/deadlock.lua",
        "staying < (waiter.enough or 1)",
        "staying < 1",
        f"{CONTRACT}/test_deadlocks.py::test_where_a_permit_becomes_free_there_is_no_deadlock",
    ),
    Mutant(
        "who stands before a reader keeps it waiting",
        f"{SCRIPTS}/deadlock.lua",
        "ask('ZRANGE', queue, 0,",
        "ask('ZRANGE', queue, ask('ZRANK', queue, waiter.token) or 0,",
        f"{CONTRACT}/test_deadlocks.py::test_a_reader_behind_a_waiting_writer_is_in_its_deadlock",
    ),
    Mutant(
        "who waits for itself may be helped",
        f"{SCRIPTS}/deadlock.lua",
        "queued ~= waiter.token and ",
        "",
        f"{CONTRACT}/test_deadlocks.py::test_a_caller_that_waits_for_itself_is_not_refused",
    ),
    Mutant(
        "who is refused for a deadlock leaves the queue",
        f"{CORE}/locks/attempt.py",
        "type(error) is not LockBusy",
        "not isinstance(error, LockBusy)",
        f"{CONTRACT}/test_deadlocks.py::test_who_is_refused_has_left_the_queue",
    ),
    Mutant(
        "a lock that is held around a process is not released in it",
        f"{CORE}/locks/parent.py",
        "        for handle in self.held_by():\n            handle.released = True\n",
        "        return super().release_request()\n",
        f"{CONTRACT}/test_started_under.py::"
        "test_it_has_the_lock_again_and_leaving_it_releases_nothing",
    ),
    Mutant(
        "one thread has the lock around a process at a time",
        f"{CORE}/locks/parent.py",
        "None if is_had or self._pid",
        "None if self._pid",
        f"{CONTRACT}/test_started_under.py::test_one_thread_or_task_has_it_at_a_time",
    ),
    Mutant(
        "a fork has no lock that is held around its parent",
        f"{CORE}/locks/parent.py",
        "is_had or self._pid != os.getpid() else",
        "is_had else",
        f"{CONTRACT}/test_started_under.py::test_a_fork_has_none_of_it",
    ),
    Mutant(
        "a lock that is held around a process is followed",
        f"{CORE}/locks/parent.py",
        "        return super().renew_request(-1)",
        "        return super().renew_request(ms)",
        f"{CONTRACT}/test_started_under.py::test_the_lease_is_followed_and_never_lengthened",
    ),
    Mutant(
        "a ticket is not shown",
        f"{CORE}/locks/transfer.py",
        "    token: str = field(repr=False)\n",
        "    token: str\n",
        f"{CONTRACT}/test_transfer.py::"
        "test_no_frame_of_a_lock_that_was_not_taken_over_shows_the_ticket",
    ),
]
LOCKS = [
    Mutant(
        "a lock whose release is left to somebody is renewed",
        f"{CORE}/locks/handle.py",
        "        later = type(self)(self.grant, self.target)\n",
        "        later = type(self)(self.grant, self.target)\n        self.grant.handles = ()\n",
        f"{CONTRACT}/test_later_releases.py::test_it_is_renewed_until_nobody_can_call_that",
    ),
    Mutant(
        "who holds a lock has it again",
        f"{CORE}/locks/layered.py",
        "return grant if self._is_had_again(grant) else None",
        "return None",
        f"{CONTRACT}/test_reentrancy.py::test_the_holder_has_it_again_by_any_object",
    ),
    Mutant(
        "only the last handle lets the lock go",
        f"{CORE}/locks/layered.py",
        "if len(grant.handles) > 1 and self._is_followed():",
        "if False:",
        f"{CONTRACT}/test_reentrancy.py::test_the_last_who_lets_go_releases_it_whichever_that_is",
    ),
    Mutant(
        "who reads and wants to write is refused",
        f"{CORE}/locks/layered.py",
        'if token.startswith("read:") and not self.options.is_shared:',
        "if False:",
        f"{CONTRACT}/test_reentrancy.py::test_a_reader_who_wants_to_write_is_told_that_it_waits_for_itself",
    ),
    Mutant(
        "a task is cancelled when its lock is lost",
        f"{CORE}/locks/scope.py",
        "            self._has_cancelled = True\n            self.task.cancel(_MESSAGE)\n",
        "            pass\n",
        f"{CONTRACT}/test_blocks.py::test_a_loss_under_two_blocks_is_told_once_by_the_outer_one",
    ),
    Mutant(
        "a with block alone holds on to its handle",
        f"{CORE}/locks/local.py",
        "        lock.begins[get_ident()] = ref(entry)\n",
        "",
        f"{CONTRACT}/test_interrupts.py::test_an_interrupt_in_the_first_instruction_of_the_end_costs_one_lease",
    ),
    Mutant(
        "several keys are taken in the order of their names",
        f"{CORE}/locks/several.py",
        "key=lambda lock: lock.name)",
        "key=lambda lock: 0)",
        f"{CONTRACT}/test_several.py::test_callers_in_opposite_order_do_not_wait_for_each_other",
    ),
    Mutant(
        "who waits for one of several keys renews those it holds",
        f"{CORE}/locks/several.py",
        "return min(longest, self.target.options.lease / 3) if self._at else longest",
        "return longest",
        f"{CONTRACT}/test_several.py::test_what_is_held_early_outlives_its_lease_and_is_whole_in_the_end",
    ),
    Mutant(
        "what stands behind a lost key is let go",
        f"{CORE}/locks/several.py",
        "unwanted = [*self._several[self._at + 1 : before + 1]]",
        "unwanted: list[Target] = []",
        f"{CONTRACT}/test_several.py::test_who_loses_an_earlier_one_as_it_waits_and_gives_up_leaves_no_place",
    ),
    Mutant(
        "what is renewed is asked for again when the connection broke",
        f"{CORE}/connections/backend.py",
        "if tries == 2 or",
        "if True or",
        f"{CONTRACT}/test_renewals.py::test_a_connection_that_was_closed_meanwhile_is_no_trouble",
    ),
    Mutant(
        "a waiter whose connection broke listens again",
        f"{CORE}/locks/mailbox.py",
        "            close(connection)\n            self._until = 0.0\n",
        "            close(connection)\n",
        f"{CONTRACT}/test_waiting.py::test_a_wait_goes_on_when_its_connections_break",
    ),
    Mutant(
        "a thread that sleeps is not taken for awake",
        f"{CORE}/locks/mailbox.py",
        "send_packed_command((listen, packed), check_health=False)\n        self._read()\n",
        "send_packed_command((packed,), check_health=False)\n",
        f"{WIRE}/test_connections.py::test_a_thread_that_sleeps_is_not_taken_for_awake",
    ),
    Mutant(
        "a thread listens on while it asks",
        f"{CORE}/locks/mailbox.py",
        "lasts = max(seconds, 0.01) if is_short else _THREAD_LISTENS_FOR",
        "lasts = max(seconds, 0.01)",
        f"{WIRE}/test_connections.py::test_a_thread_listens_on_while_it_asks",
    ),
    Mutant(
        "a waiter sleeps no longer than the lease that it saw",
        f"{CORE}/locks/attempt.py",
        "max(min(seconds, busy.ms / 1000 + 0.001), 0.001)",
        "seconds",
        f"{WIRE}/test_connections.py::test_a_thread_sleeps_no_longer_than_the_lease_that_it_saw",
    ),
    Mutant(
        "who gives up lets go what it was given",
        f"{CORE}/locks/attempt.py",
        "            if self.was_retried or type(error) is not LockBusy:\n",
        "            if False:\n",
        f"{WIRE}/test_connections.py::test_who_gives_up_what_it_was_given_has_the_next_have_it",
    ),
    Mutant(
        "who gives up looks whether the next woke",
        f"{CORE}/locks/attempt.py",
        "                await look(io, self.session, target, reply.value[1])\n",
        "",
        f"{WIRE}/test_connections.py::test_who_gives_up_what_it_was_given_has_the_next_have_it",
    ),
    Mutant(
        "who asks just now is not taken for dead",
        f"{SCRIPTS}/acquire.lua",
        "  mark_awake(ARGV[5])\n",
        "",
        f"{WIRE}/test_scripts.py::test_mail_of_who_asks_just_now_may_lie_unread",
    ),
    Mutant(
        "who was roused is not taken for dead",
        f"{SCRIPTS}/lib.lua",
        "    mark_awake(box)\n    return wake(box, token)\n",
        "    return wake(box, token)\n",
        f"{WIRE}/test_scripts.py::test_who_was_roused_counts_as_awake_until_it_listens_again",
    ),
    Mutant(
        "what is neither renewed nor on a list asks nothing while it is held",
        f"{CORE}/locks/grant.py",
        "min(lease / 3, LISTED_AFTER) if is_kept else math.inf",
        "min(lease / 3, LISTED_AFTER)",
        f"{CONTRACT}/test_footprint.py::"
        "test_a_lock_that_is_neither_renewed_nor_on_a_list_asks_nothing_while_it_is_held",
    ),
    Mutant(
        "a waiter that could not listen asks for one limit, not two",
        f"{CORE}/locks/attempt.py",
        "1 if self._failures else 2",
        "2",
        f"{CONTRACT}/test_call_limits.py::"
        "test_a_waiter_that_cannot_listen_any_more_is_back_after_another_limit",
    ),
    Mutant(
        "a grant that comes too late is none",
        f"{CORE}/locks/attempt.py",
        "if clock.now() < grant.end:",
        "if True:",
        f"{CONTRACT}/test_network.py::test_a_grant_that_comes_when_its_lease_is_over_is_given_back",
    ),
    Mutant(
        "a connection is closed with its event loop",
        f"{CORE}/connections/pipe.py",
        "            for one in list(self.closing):\n",
        "            for one in ():\n",
        f"{CONTRACT}/test_renewals.py::test_a_loop_that_ends_leaves_no_connection_and_tells_of_what_is_held",
    ),
    Mutant(
        "a lock that was let go early is kept for its time",
        f"{CORE}/protocol/scripts/release.lua",
        "rest = math.min(ARGV[3] - (now - math.floor(fence / 1000)), ARGV[3])",
        "rest = 0",
        f"{CONTRACT}/test_min_hold.py::test_what_is_left_is_the_rest_of_min_hold_whatever_the_lease_was",
    ),
    Mutant(
        "a foreign value that looks like a group stays",
        f"{CORE}/protocol/scripts/lib.lua",
        "if group ~= 'readers' and group ~= 'permits' then",
        "if not group then",
        f"{CONTRACT}/test_exclusion.py::test_what_another_program_holds_is_its_own_whatever_it_wrote_there",
    ),
    Mutant(
        "memory that is used up keeps no renewal away",
        f"{CORE}/protocol/scripts/lib.lua",
        "  redis.call('PEXPIRE', META, whole(lease + MEMORY))\n",
        "",
        f"{CONTRACT}/test_network.py::test_a_held_lock_is_renewed_and_released_when_memory_is_used_up",
    ),
    Mutant(
        "who lets a lost lock go keeps the one taken since",
        f"{CORE}/locks/layered.py",
        "by.holds[place] = ref(grant, functools.partial(by.holds.pop, place))",
        "by.holds.setdefault(place, ref(grant))",
        f"{CONTRACT}/test_reentrancy.py::test_who_lets_a_lost_one_go_has_the_one_taken_since_again",
    ),
    Mutant(
        "a waiter whose token is no text breaks no release",
        f"{CORE}/locks/grant.py",
        "named = text(given).split()",
        "named = given.decode().split() if given else []",
        "tests/wire/test_connections.py::test_a_waiter_whose_token_is_no_text_breaks_no_release",
    ),
    Mutant(
        "a block is cancelled at the end of a lease that is not renewed",
        f"{CORE}/locks/scope.py",
        "renewal_of(grant, ASYNCIO).register(grant)",
        "pass",
        f"{CONTRACT}/test_blocks.py::test_a_lease_that_is_over_cancels_the_block",
    ),
    Mutant(
        "two names have two keys",
        f"{CORE}/locks/several.py",
        "if len(set(called.values())) < len(called):",
        "if False:",
        f"{CONTRACT}/test_options.py::test_two_names_have_two_keys",
    ),
    Mutant(
        "several that are interrupted as they are handed out are refused to a copy",
        f"{CORE}/locks/attempt.py",
        'self._cancels("doubt" if in_doubt else "cancel", only)',
        'self._cancels("cancel", only)',
        f"{CONTRACT}/test_several.py::"
        "test_a_copy_that_comes_after_an_interrupt_between_two_of_them_takes_none",
    ),
    Mutant(
        "all steps of connecting share one limit",
        f"{CORE}/connections/connection.py",
        "limit_to(self, self.until - clock.now())\n            return super()",
        "return super()",
        f"{CONTRACT}/test_call_limits.py::"
        "test_all_steps_of_connecting_to_a_slow_server_share_one_limit",
    ),
    Mutant(
        "who waits to be connected does so within the limit",
        f"{CORE}/connections/pipe.py",
        "await asyncio.wait({opening}, timeout=max(until - clock.now(), 0))",
        "await asyncio.wait({opening})",
        f"{CONTRACT}/test_call_limits.py::test_a_client_that_would_wait_longer_to_be_connected_"
        "waits_no_longer_than_for_answers",
    ),
    Mutant(
        "an address of the host has what is left of the limit",
        f"{CORE}/connections/connection.py",
        "max(min(limit, connection.until - clock.now()), 0.001)",
        "limit",
        f"{CONTRACT}/test_call_limits.py::test_a_client_that_would_wait_longer_to_be_connected_"
        "waits_no_longer_than_for_answers",
    ),
    Mutant(
        "the connection of a loop ends with its client",
        f"{CORE}/connections/pipe.py",
        "self._loop.call_soon_threadsafe(self.line.close)",
        "pass",
        "tests/redis/test_async_connections.py::"
        "test_clients_that_are_thrown_away_leave_no_connection_while_the_loop_runs",
    ),
    Mutant(
        "what breaks twice is undone behind each copy",
        f"{CORE}/connections/backend.py",
        "self.undo(line, undo())",
        "pass",
        f"{CONTRACT}/test_network.py::"
        "test_a_server_that_stands_still_and_goes_on_holds_no_lock_of_who_gave_up",
    ),
    Mutant(
        "who was given the lock has it for its lease, not for the claim",
        f"{CORE}/protocol/scripts/acquire.lua",
        "read_waiter(token) and lease or math.max(lease, lease_left(group, token))",
        "math.max(lease, lease_left(group, token))",
        "tests/faults/test_killed_holder.py::"
        "test_who_was_given_the_lock_has_it_for_its_lease_however_short",
    ),
    Mutant(
        "of a lock that is had again, the handle comes last",
        f"{CORE}/locks/layered.py",
        "        return target.handle(grant, target)",
        "        held = target.handle(grant, target)\n"
        "        now = clock.now()\n        return held",
        "tests/faults/test_interrupts_sharing.py::test_no_interrupt_leaks_a_count",
    ),
    Mutant(
        "a handle of several counts as released before the others are counted",
        f"{CORE}/locks/layered.py",
        "        self.released = True\n"
        "        grant.handles = tuple([ref(handle) for handle in others])",
        "        grant.handles = tuple([ref(handle) for handle in others])\n"
        "        self.released = True",
        "tests/faults/test_interrupts_sharing.py::test_no_interrupt_leaks_a_count",
    ),
    Mutant(
        "an interrupt gives back what several keys were had again by",
        f"{CORE}/locks/several.py",
        "taken.append(await lock._again(io, by))\n                    if taken[-1] is None:",
        "had = await lock._again(io, by)\n"
        "                    taken.append(had)\n                    if had is None:",
        "tests/faults/test_interrupts_many.py::test_no_interrupt_leaves_a_lock_behind",
    ),
    Mutant(
        "what renews goes on, whatever has ended it",
        f"{CORE}/locks/renewal.py",
        "        finally:\n            # Whatever has ended it.\n            self._has_ended()",
        "        except ZeroDivisionError:\n            pass\n        self._has_ended()",
        "tests/faults/test_renewal_callbacks.py::"
        "test_a_renewal_that_is_ended_from_outside_begins_again",
    ),
    Mutant(
        "a sub-interpreter ends without the process",
        f"{CORE}/locks/renewal.py",
        "        renewal.end()",
        "        pass",
        "tests/faults/test_renewal_callbacks.py::test_a_sub_interpreter_ends_without_the_process",
    ),
    Mutant(
        "without the right to ask for the time nothing is taken",
        f"{CORE}/protocol/scripts/acquire.lua",
        "true) and redis.call('TIME') --",
        "true) and {} --",
        "tests/faults/test_refusals.py::test_a_user_who_lacks_a_right_gets_no_lock",
    ),
    Mutant(
        "a renewal that fails says at which server",
        f"{CORE}/locks/renewal.py",
        "logger.warning(text, grant.key, grant.session.where, answer)",
        'logger.warning(text, grant.key, "", answer)',
        "tests/faults/test_renewal_servers.py::test_a_renewal_that_fails_says_at_which_server",
    ),
    Mutant(
        "what connects ends with its loop",
        f"{CORE}/connections/pipe.py",
        "            self._opening.cancel()\n",
        "            pass\n",
        "tests/faults/test_renewal_servers.py::"
        "test_a_loop_that_ends_beside_a_frozen_server_leaves_no_task",
    ),
]
RULES = [
    Mutant(
        "a taken lock is refused",
        f"{SCRIPTS}/acquire.lua",
        "elseif has_room(value, group, token) and not",
        "elseif not",
        f"{CONTRACT}/test_exclusion.py::test_nobody_else_has_it_while_it_is_held",
    ),
    Mutant(
        "a lock that vanished goes to who waits for it",
        f"{SCRIPTS}/acquire.lua",
        "given = admit(value, group) or false\n  value",
        "value",
        f"{CONTRACT}/test_waiting.py::test_a_lock_that_vanished_goes_to_who_waits_for_it",
    ),
    Mutant(
        "the short way is for a lock that nobody waits for",
        f"{SCRIPTS}/acquire.lua",
        "redis.call('EXISTS', BESIDE .. 'waiting', BESIDE .. 'gone')",
        "redis.call('EXISTS', BESIDE .. 'gone')",
        f"{CONTRACT}/test_waiting.py::test_a_lock_that_vanished_goes_to_who_waits_for_it",
    ),
    Mutant(
        "who comes later joins nobody before those who wait",
        f"{SCRIPTS}/acquire.lua",
        " and not first_waiter() then",
        " then",
        f"{CONTRACT}/test_waiting.py::test_a_reader_waits_behind_a_writer_that_came_before",
    ),
    Mutant(
        "a token that was let go takes the lock no more",
        f"{SCRIPTS}/acquire.lua",
        "if is_gone(token) then",
        "if false then",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
    Mutant(
        "nor does it by the short way",
        f"{SCRIPTS}/acquire.lua",
        ", BESIDE .. 'gone') == 0",
        ") == 0",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
    Mutant(
        "a copy that finds its own token has the lock",
        f"{SCRIPTS}/acquire.lua",
        "local fence = fence_of(value, group, token)",
        "local fence",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "a late copy of what took a lock never shortens its lease",
        f"{SCRIPTS}/acquire.lua",
        "read_waiter(token) and lease or math.max(lease, lease_left(group, token))",
        "lease",
        f"{CONTRACT}/test_network.py::"
        "test_a_copy_of_what_took_the_lock_that_comes_late_cuts_nothing",
    ),
    Mutant(
        "a caller that gives up leaves the queue",
        f"{SCRIPTS}/acquire.lua",
        "elseif leave_queue(token) then",
        "elseif false then",
        f"{CONTRACT}/test_waiting.py::test_who_gives_up_is_not_waited_for",
    ),
    Mutant(
        "who gives up lets in those behind it who may share the lock",
        f"{SCRIPTS}/acquire.lua",
        "group and admit(value, group) or left",
        "left",
        f"{CONTRACT}/test_waiting.py::"
        "test_who_gives_up_lets_in_those_behind_who_may_share_the_lock",
    ),
    Mutant(
        "who gives up has another ask when a lease ends of which it alone was told",
        f"{SCRIPTS}/acquire.lua",
        "left >= 0 and rouse(left)",
        "nil",
        f"{CONTRACT}/test_waiting.py::"
        "test_who_gives_up_has_another_ask_when_a_lease_ends_of_which_it_alone_was_told",
    ),
    Mutant(
        "a held lock has an end",
        f"{SCRIPTS}/acquire.lua",
        "'NX', 'PX', ARGV[2])",
        "'NX')",
        f"{CONTRACT}/test_exclusion.py::test_what_stands_at_the_name_ends_with_the_lease",
    ),
    Mutant(
        "the holder record stands beside the lock",
        f"{SCRIPTS}/acquire.lua",
        "token .. ' ' .. ARGV[3]",
        "token .. ' {}'",
        f"{CONTRACT}/test_exclusion.py::test_the_holder_is_named_to_who_finds_it_busy",
    ),
    Mutant(
        "who came first stands first",
        f"{SCRIPTS}/acquire.lua",
        "whole(math.max(now_us, (last or 0) + 1))",
        "whole(9e15 - now_us)",
        f"{CONTRACT}/test_waiting.py::test_who_came_first_has_it_first",
    ),
    Mutant(
        "a lock that is held for long is listed",
        f"{SCRIPTS}/lib.lua",
        "whole(ends - now))\n  list(ends)",
        "whole(ends - now))",
        f"{CONTRACT}/test_footprint.py::"
        "test_a_lock_that_is_not_renewed_is_listed_too_until_it_is_released",
    ),
    Mutant(
        "a released lock is listed no more",
        f"{SCRIPTS}/release.lua",
        "    redis.pcall('ZREM', INDEX, NAME)\n  end\n  return {'OK'}",
        "  end\n  return {'OK'}",
        f"{CONTRACT}/test_footprint.py::"
        "test_a_lock_that_is_not_renewed_is_listed_too_until_it_is_released",
    ),
    Mutant(
        "a lease counts from before the request was sent",
        f"{CORE}/locks/attempt.py",
        "self.token, int(value[1]), reply.sent, self.owner)",
        "self.token, int(value[1]), clock.now(), self.owner)",
        f"{FAULTS}/test_slow_answers.py::test_of_a_lock_that_was_taken",
    ),
    Mutant(
        "a grant that came too late is given back",
        f"{CORE}/locks/attempt.py",
        "            await self._cancel(io, in_doubt=self.was_retried)\n            "
        "self._begin_anew(io)\n            return Busy(0, None)",
        "            self._begin_anew(io)\n            return Busy(0, None)",
        f"{CONTRACT}/test_network.py::test_a_grant_that_comes_when_its_lease_is_over_is_given_back",
    ),
    Mutant(
        "a wait ends with the caller's time",
        f"{CORE}/locks/attempt.py",
        "min(pause, left, await",
        "min(pause, await",
        f"{CONTRACT}/test_waiting.py::test_nobody_waits_for_longer_than_told",
    ),
    Mutant(
        "a wait goes on when its connections break twice",
        f"{CORE}/locks/attempt.py",
        "if self._failures > 1 and not self.session.may_pass(error):",
        "if self._failures > 1:",
        f"{FAULTS}/test_waiting_outages.py::"
        "test_a_wait_goes_on_however_soon_its_connection_is_cut_again",
    ),
    Mutant(
        "a copy that comes after the answer busy takes no lock",
        f"{CORE}/locks/attempt.py",
        "if self.was_retried or type(error) is not LockBusy:",
        "if type(error) is not LockBusy:",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_answer_busy_takes_no_lock",
    ),
    Mutant(
        "a release compares the token",
        f"{SCRIPTS}/lib.lua",
        "  if value == token then\n    redis.call('DEL', NAME)",
        "  if value and not group then\n    redis.call('DEL', NAME)",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_the_next_holder_of_ours",
    ),
    Mutant(
        "so does one by the short way",
        f"{SCRIPTS}/release.lua",
        "not ARGV[3] and redis.pcall('GET', NAME) == token and",
        "not ARGV[3] and",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_the_next_holder_of_ours",
    ),
    Mutant(
        "a release gives the lock to the first who waits",
        f"{SCRIPTS}/release.lua",
        "(not value or group) and admit(value, group) or",
        "",
        f"{CONTRACT}/test_waiting.py::test_who_sleeps_is_woken_by_a_release",
    ),
    Mutant(
        "whom it is given to is woken",
        f"{SCRIPTS}/lib.lua",
        "redis.call('LPUSH', box, token)",
        "",
        f"{CONTRACT}/test_waiting.py::test_who_sleeps_is_woken_by_a_release",
    ),
    Mutant(
        "a task whose mail has come is woken",
        f"{CORE}/locks/mailbox.py",
        "if mail is not None and text(mail[1]) in self._woken:",
        "if False:",
        f"{CONTRACT}/test_waiting.py::test_who_sleeps_is_woken_by_a_release",
    ),
    Mutant(
        "a release that was sent twice is no loss",
        f"{CORE}/locks/handle.py",
        "if not is_ours and (reply.was_retried or grant.times_asked > 1):",
        "if False:",
        f"{CONTRACT}/test_network.py::test_an_answer_that_is_cut_off_is_asked_for_again",
    ),
    Mutant(
        "a release that is called again is no loss",
        f"{CORE}/locks/handle.py",
        "(reply.was_retried or grant.times_asked > 1)",
        "reply.was_retried",
        f"{CONTRACT}/test_network.py::test_a_release_whose_copy_finds_the_next_holder_was_one",
    ),
    Mutant(
        "a release by force is a loss though a copy is under way",
        f"{CORE}/locks/handle.py",
        "is_ours = value[1] is None and clock",
        "is_ours = clock",
        f"{CONTRACT}/test_network.py::"
        "test_a_release_after_the_loss_says_so_though_an_earlier_copy_is_under_way",
    ),
    Mutant(
        "what was sent twice is let go as that",
        f"{CORE}/locks/grant.py",
        '"repeat" if self.was_retried else ""',
        '""',
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
    Mutant(
        "a token that was let go is refused",
        f"{SCRIPTS}/release.lua",
        "if ARGV[2] == 'doubt' or ARGV[2] == 'repeat' then",
        "if ARGV[2] == 'doubt' then",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_release_takes_no_lock",
    ),
    Mutant(
        "a token that was given up is refused",
        f"{SCRIPTS}/release.lua",
        "if ARGV[2] == 'doubt' or ARGV[2] == 'repeat' then",
        "if ARGV[2] == 'repeat' then",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_answer_busy_takes_no_lock",
    ),
    Mutant(
        "a name that is kept for min_hold is no holder's token",
        f"{SCRIPTS}/release.lua",
        "was_held, value = true, 'kept:' .. whole(fence)",
        "was_held, value = true, token",
        f"{CONTRACT}/test_min_hold.py::test_a_chosen_token_is_kept_out_too",
    ),
    Mutant(
        "min_hold wakes who would sleep beyond it",
        f"{SCRIPTS}/release.lua",
        "rest > 0 and rouse(rest) or false",
        "false",
        f"{CONTRACT}/test_releasing.py::test_a_waiter_has_it_when_min_hold_is_over",
    ),
    Mutant(
        "a cancelled waiter leaves the queue",
        f"{SCRIPTS}/release.lua",
        "if (leave_queue(token) or was_held) and value then",
        "if was_held and value then",
        f"{CONTRACT}/test_waiting.py::test_a_task_that_is_cancelled_as_it_waits_is_not_waited_for",
    ),
    Mutant(
        "a lost lock raises at the end of its block",
        f"{CORE}/operations.py",
        "            if body_error is None and to_raise:\n                raise\n",
        "",
        f"{CONTRACT}/test_releasing.py::test_the_end_of_a_block_says_that_the_lock_was_lost",
    ),
    Mutant(
        "a loss hides no error of the block",
        f"{CORE}/operations.py",
        "if body_error is None and to_raise:",
        "if to_raise:",
        f"{CONTRACT}/test_releasing.py::test_the_end_of_a_block_hides_no_error_of_its_body",
    ),
    Mutant(
        "a waiter that is interrupted leaves nothing",
        f"{CORE}/connections/backend.py",
        "            await clean_up()\n",
        "            clean_up().close()\n",
        f"{CONTRACT}/test_interrupts.py::"
        "test_a_waiter_that_is_interrupted_at_any_step_is_not_waited_for",
    ),
    Mutant(
        "a task that is cancelled as it waits leaves nothing",
        f"{CORE}/connections/pipe.py",
        "loop.create_task(clean_up())",
        "loop.create_task(asyncio.sleep(0))",
        f"{CONTRACT}/test_waiting.py::test_a_task_that_is_cancelled_as_it_waits_is_not_waited_for",
    ),
    Mutant(
        "what is no lock at the name is left alone",
        f"{SCRIPTS}/lib.lua",
        "    return '' -- no lock",
        "    return false -- no lock",
        f"{WIRE}/test_scripts.py::test_data_of_another_type_is_left_and_said_so",
    ),
    Mutant(
        "a renewal compares the token",
        f"{SCRIPTS}/renew.lua",
        "if not fence then",
        "if false then",
        f"{CONTRACT}/test_losses.py::test_a_loss_is_found_by_the_renewal",
    ),
    Mutant(
        "whoever holds it is told by the token",
        f"{SCRIPTS}/lib.lua",
        "  if value == token then\n    local fence",
        "  if value then\n    local fence",
        f"{CONTRACT}/test_losses.py::test_whatever_the_holder_asks_says_that_the_lock_was_lost",
    ),
    Mutant(
        "a renewal never shortens",
        f"{SCRIPTS}/renew.lua",
        "math.max(lease_left(group, token), tonumber(ARGV[2]))",
        "tonumber(ARGV[2])",
        f"{CONTRACT}/test_network.py::test_an_extension_that_comes_late_cuts_nothing",
    ),
    Mutant(
        "a lock is renewed before its lease ends",
        f"{CORE}/locks/renewal.py",
        "grant.due = answer.sent + grant.lease / 3",
        "grant.due = answer.sent + grant.lease",
        f"{CONTRACT}/test_renewals.py::test_a_lock_is_renewed_for_as_long_as_it_is_held",
    ),
    Mutant(
        "many locks are renewed in few writes",
        f"{CORE}/connections/backend.py",
        "BATCH = 1000",
        "BATCH = 1",
        f"{CONTRACT}/test_renewals.py::test_hundreds_of_locks_take_few_round_trips",
    ),
    Mutant(
        "a renewed lease counts from before the request was sent",
        f"{CORE}/locks/grant.py",
        "self.end = max(self.end, reply.sent + int",
        "self.end = max(self.end, clock.now() + int",
        f"{FAULTS}/test_slow_answers.py::test_of_one_that_was_renewed",
    ),
    Mutant(
        "a lock whose lease is over by the local clock is lost",
        f"{CORE}/locks/renewal.py",
        "elif now >= grant.end:",
        "elif False:",
        f"{CONTRACT}/test_losses.py::"
        "test_a_lock_that_cannot_be_renewed_is_lost_before_anybody_else_has_it",
    ),
    Mutant(
        "a lock whose thread or task has ended is renewed no longer",
        f"{CORE}/locks/renewal.py",
        "if grant.is_renewed and grant.ended_owner:",
        "if False:",
        f"{CONTRACT}/test_leases.py::"
        "test_what_a_thread_or_task_held_as_it_ended_is_renewed_no_longer",
    ),
    Mutant(
        "the loss takes the place of the cancellation that it made",
        f"{CORE}/locks/scope.py",
        "        if others or not isinstance(error, asyncio.CancelledError):\n",
        "        if True:\n",
        f"{CONTRACT}/test_losses.py::test_the_block_of_a_task_ends_when_its_lock_is_lost",
    ),
    Mutant(
        "a cancellation from outside stays one",
        f"{CORE}/locks/scope.py",
        "        if others or not isinstance(error, asyncio.CancelledError):\n",
        "        if not isinstance(error, asyncio.CancelledError):\n",
        f"{CONTRACT}/test_blocks.py::"
        "test_a_cancellation_from_outside_that_meets_the_loss_stays_one",
    ),
    Mutant(
        "a task that finds the loss itself is not cancelled",
        f"{CORE}/locks/scope.py",
        "self._has_cancelled or asyncio.current_task() is self.task",
        "self._has_cancelled",
        f"{CONTRACT}/test_blocks.py::"
        "test_a_block_that_finds_the_loss_itself_is_not_cancelled_besides",
    ),
    Mutant(
        "a lock object forgets what it has lost",
        f"{CORE}/locks/local.py",
        "if held is not None and not entry.is_block and (held.released or held.lost):",
        "if False:",
        f"{CONTRACT}/test_blocks.py::test_an_object_whose_leases_run_out_forgets_them",
    ),
    Mutant(
        "the same name in another database is another lock",
        f"{CORE}/connections/session.py",
        'settings.get("db") or 0)',
        "0)",
        f"{CONTRACT}/test_holding_again.py::"
        "test_another_client_of_the_same_database_is_the_same_lock",
    ),
    Mutant(
        "a loss is told to who asked for it",
        f"{CORE}/locks/grant.py",
        "self.notify_of_trouble(is_lost=True)",
        "pass",
        f"{CONTRACT}/test_losses.py::test_a_loss_is_told_once",
    ),
    Mutant(
        "after a fork the child has nothing",
        f"{CORE}/locks/grant.py",
        "return self.pid == os.getpid()",
        "return True",
        f"{CONTRACT}/test_processes.py::test_a_forked_child_holds_nothing",
    ),
    Mutant(
        "sibling tasks do not share a lock",
        f"{CORE}/process.py",
        "owners.get(what)",
        "next(iter(owners.values()), None)",
        f"{CONTRACT}/test_reentrancy.py::test_another_thread_or_task_does_not_have_it_again",
    ),
    Mutant(
        "a child thread does not share the lock of its parent",
        f"{CORE}/process.py",
        "owner.thread is not threading.current_thread() or",
        "",
        f"{CONTRACT}/test_reentrancy.py::"
        "test_no_child_thread_has_it_again_by_a_copy_of_the_context",
    ),
    Mutant(
        "errors of redis-py become LockUnavailable",
        f"{CORE}/connections/session.py",
        "raise error from found",
        "raise found",
        f"{FAULTS}/test_outages.py::"
        "test_every_operation_on_a_server_that_is_down_ends_in_the_one_error",
    ),
    Mutant(
        "a script that was flushed is sent again",
        f"{CORE}/connections/backend.py",
        "elif isinstance(answer, redis_exceptions.NoScriptError):",
        "elif False:",
        f"{CONTRACT}/test_network.py::test_scripts_that_the_server_forgot_are_sent_again",
    ),
    Mutant(
        "no more permits than the limit",
        f"{SCRIPTS}/lib.lua",
        "redis.call('ZCARD', SHARES) < limit",
        "true",
        f"{CONTRACT}/test_exclusion.py::test_so_many_are_in_together_as_there_are_permits",
    ),
    Mutant(
        "a share is released by its holder alone",
        f"{SCRIPTS}/lib.lua",
        "if not (group and redis.call('ZREM', SHARES, token) == 1) then",
        "if not group then",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_the_next_holder_of_ours",
    ),
    Mutant(
        "a process that was forked begins anew",
        f"{CORE}/process.py",
        "if found.pid == getpid() and found",
        "if found",
        f"{FAULTS}/test_forks.py::"
        "test_a_child_renews_what_it_takes_where_its_parent_has_renewed_before",
    ),
    Mutant(
        "a waiter that asks no more is dropped",
        f"{SCRIPTS}/lib.lua",
        "if not alive or alive < now then",
        "if not alive then",
        f"{WIRE}/test_handover.py::test_waiters_who_ask_no_more_are_skipped_and_dropped",
    ),
    Mutant(
        "a queue ends by itself",
        f"{SCRIPTS}/acquire.lua",
        "  redis.call('PEXPIRE', WAITERS, slice + 4 * LATE)\n",
        "",
        f"{WIRE}/test_handover.py::test_a_waiter_and_the_queue_live_for_longer_than_it_may_sleep",
    ),
    Mutant(
        "who comes later is later though the clock was stepped back",
        f"{SCRIPTS}/acquire.lua",
        "math.max(now_us, (last or 0) + 1)",
        "now_us",
        f"{WIRE}/test_handover.py::test_who_comes_later_is_later_though_the_clock_was_stepped_back",
    ),
    Mutant(
        "who asks again keeps its place",
        f"{SCRIPTS}/acquire.lua",
        "if not rank then",
        "if true then",
        f"{WIRE}/test_handover.py::test_who_asks_again_keeps_its_place",
    ),
    Mutant(
        "a waiter that does not fetch the lock is passed over",
        f"{SCRIPTS}/look.lua",
        "if rank and has_mail(box, token) and",
        "if false and",
        f"{WIRE}/test_handover.py::test_a_lock_whose_mail_is_not_fetched_goes_to_the_next",
    ),
    Mutant(
        "a waiter that fetched the lock keeps it",
        f"{SCRIPTS}/look.lua",
        "if rank and has_mail(box, token) and",
        "if rank and",
        f"{WIRE}/test_handover.py::"
        "test_one_that_was_fetched_is_left_to_who_fetched_it_and_another_is_roused",
    ),
    Mutant(
        "a waiter that is passed over keeps its place",
        f"{SCRIPTS}/look.lua",
        "  queue_again(token)\n",
        "",
        f"{WIRE}/test_handover.py::test_a_permit_that_nobody_fetches_goes_to_the_next",
    ),
    Mutant(
        "where nobody fetches the lock another is roused",
        f"{SCRIPTS}/look.lua",
        "given or rouse(CLAIM, true) or false",
        "given or false",
        f"{WIRE}/test_handover.py::test_behind_another_program_the_next_is_woken_to_ask_on",
    ),
    Mutant(
        "a share that a dead waiter was given goes to the next",
        f"{SCRIPTS}/look.lua",
        "  drop(token)\n",
        "",
        f"{WIRE}/test_handover.py::test_a_permit_that_nobody_fetches_goes_to_the_next",
    ),
    Mutant(
        "a waiter that would sleep beyond a shorter lease is woken",
        f"{SCRIPTS}/acquire.lua",
        "local roused = rouse(lease)",
        "local roused",
        f"{WIRE}/test_handover.py::test_a_shorter_lease_rouses_the_last_waiter_alone",
    ),
    Mutant(
        "a later fence is larger though the clock was stepped back",
        f"{SCRIPTS}/acquire.lua",
        "if last and #last <= 16 and tonumber(last) >= tonumber(fence) then",
        "if false then",
        f"{WIRE}/test_handover.py::test_a_fence_is_larger_though_the_clock_was_stepped_back",
    ),
    Mutant(
        "so is that of a share",
        f"{SCRIPTS}/lib.lua",
        "math.max(now_us, read_meta() + 1)",
        "now_us",
        f"{WIRE}/test_handover.py::test_a_fence_is_larger_though_the_clock_was_stepped_back",
    ),
    Mutant(
        "who leaves a lock that is free gives it to who waits",
        f"{SCRIPTS}/release.lua",
        "local given = (not value or group)",
        "local given = was_held and (not value or group)",
        f"{CONTRACT}/test_releasing.py::"
        "test_who_finds_its_lock_lost_and_free_leaves_it_to_who_waits",
    ),
    Mutant(
        "who is cancelled has another ask in its place",
        f"{SCRIPTS}/release.lua",
        "if (leave_queue(token) or was_held) and value then",
        "if (leave_queue(token) and false or was_held) and value then",
        f"{WIRE}/test_handover.py::test_who_leaves_and_was_roused_has_another_asked_in_its_place",
    ),
    Mutant(
        "who lets a share go has a waiter hear when the others' leases end",
        f"{SCRIPTS}/release.lua",
        "if (leave_queue(token) or was_held) and value then",
        "if leave_queue(token) and value then",
        f"{CONTRACT}/test_waiting.py::"
        "test_a_writer_has_it_when_the_leases_of_those_who_are_left_end",
    ),
    Mutant(
        "the name is taken for as long as the longest lease that is left",
        f"{SCRIPTS}/lib.lua",
        "redis.call('PEXPIRE', NAME, whole(last_end() - now)) --",
        "--",
        f"{CONTRACT}/test_waiting.py::"
        "test_a_writer_has_it_when_the_leases_of_those_who_are_left_end",
    ),
    Mutant(
        "a later share never cuts the name",
        f"{SCRIPTS}/lib.lua",
        "    ends = last_end()\n",
        "",
        f"{WIRE}/test_handover.py::test_the_name_is_taken_for_as_long_as_the_longest_lease",
    ),
    Mutant(
        "what is given is given for a moment",
        f"{SCRIPTS}/lib.lua",
        "grant(token, CLAIM,",
        "grant(token, 4 * CLAIM,",
        f"{WIRE}/test_handover.py::test_a_lock_that_is_let_go_is_given_to_the_first_for_a_moment",
    ),
    Mutant(
        "readers and permits do not mix",
        f"{SCRIPTS}/lib.lua",
        "group and group == kind and redis",
        "group and kind and redis",
        f"{WIRE}/test_handover.py::test_readers_and_permits_do_not_mix",
    ),
    Mutant(
        "a share that ran out is free",
        f"{SCRIPTS}/lib.lua",
        "'-inf', now)) do",
        "'-inf', 0)) do",
        f"{CONTRACT}/test_waiting.py::test_a_permit_whose_lease_is_over_is_free",
    ),
    Mutant(
        "a share that is returned goes to who waits",
        f"{SCRIPTS}/release.lua",
        "local given = (not value or group)",
        "local given = (not value)",
        f"{CONTRACT}/test_waiting.py::test_a_permit_that_is_returned_goes_to_who_waits_for_it",
    ),
    Mutant(
        "the last reader hands on",
        f"{SCRIPTS}/lib.lua",
        "if redis.call('EXISTS', SHARES) == 0 then",
        "if false then",
        f"{WIRE}/test_handover.py::test_all_readers_up_to_the_next_writer_are_let_in_at_once",
    ),
    Mutant(
        "all readers up to the next writer are let in",
        f"{SCRIPTS}/lib.lua",
        "    value, group = standing()\n    if not group then\n      return given",
        "    value, group = standing()\n    if true then\n      return given",
        f"{WIRE}/test_handover.py::test_all_readers_up_to_the_next_writer_are_let_in_at_once",
    ),
    Mutant(
        "of those who hold it one who has not left is named",
        f"{SCRIPTS}/acquire.lua",
        "if group then\n  _, record",
        "if false then\n  _, record",
        f"{CONTRACT}/test_exclusion.py::test_of_those_who_hold_it_one_who_has_not_left_is_named",
    ),
    Mutant(
        "a lock that somebody met is listed",
        f"{SCRIPTS}/acquire.lua",
        "list_met(left)\n",
        "\n",
        f"{WIRE}/test_handover.py::test_a_lock_that_somebody_met_or_waits_for_is_listed",
    ),
    Mutant(
        "the index is swept",
        f"{SCRIPTS}/lib.lua",
        "redis.pcall('ZREMRANGEBYSCORE', INDEX, '-inf', whole(now - MEMORY))",
        "",
        f"{WIRE}/test_handover.py::test_a_name_that_is_entered_sweeps_those_that_ended_long_ago",
    ),
    Mutant(
        "a release after the lease is a loss though an earlier copy is under way",
        f"{CORE}/locks/handle.py",
        "is_ours = value[1] is None and clock.now() < grant.end",
        "is_ours = value[1] is None",
        f"{CONTRACT}/test_network.py::"
        "test_a_release_that_is_called_again_when_the_lease_is_over_says_so",
    ),
    Mutant(
        "a token whose lock was found lost takes it no more",
        f"{SCRIPTS}/release.lua",
        "if ARGV[2] == 'doubt' or ARGV[2] == 'repeat' then",
        "if ARGV[2] == 'doubt' or ARGV[2] == 'repeat' and was_held then",
        f"{CONTRACT}/test_network.py::test_a_copy_that_comes_after_the_loss_takes_no_lock",
    ),
]
LAYERS = [
    Mutant(
        "a script of a hosted server touches no mailbox",
        f"{SCRIPTS}/hosted.lua",
        "local function mark_awake()\nend\n",
        "",
        f"{WIRE}/test_hosted.py::test_no_script_touches_a_key_that_it_was_not_told_of",
    ),
    Mutant(
        "a circle of waiters is told from a wait that has ended",
        f"{SCRIPTS}/deadlock.lua",
        "return alive and alive >= now and ask(",
        "return true or ask(",
        f"{CONTRACT}/test_deadlocks.py::test_a_wait_that_ended_is_no_part_of_a_deadlock",
    ),
    Mutant(
        "a child of with_lock has its parent's lock",
        f"{CORE}/locks/parent.py",
        "self._all.get(place)",
        "None",
        f"{CONTRACT}/test_started_under.py::"
        "test_it_has_the_lock_again_and_leaving_it_releases_nothing",
    ),
    Mutant(
        "a release by force compares the holder that was seen",
        f"{SCRIPTS}/force.lua",
        "was_held, value, group = drop(token)",
        "redis.call('DEL', NAME)\n  was_held, value, group = true, false, nil",
        f"{CONTRACT}/test_operators.py::"
        "test_who_takes_it_while_the_release_by_force_is_under_way_keeps_it",
    ),
    Mutant(
        "who was forced out learns by whom",
        f"{SCRIPTS}/force.lua",
        "redis.call('HSET', BESIDE .. 'forced', token, ARGV[2])\n",
        "",
        f"{CONTRACT}/test_operators.py::test_who_was_forced_out_learns_by_whom_and_why",
    ),
    Mutant(
        "a release by force gives the lock to who waits",
        f"{SCRIPTS}/force.lua",
        "(not value or group) and admit(value, group) or group",
        "group",
        f"{CONTRACT}/test_operators.py::test_a_waiter_follows_who_was_forced_out",
    ),
    Mutant(
        "a copy of a release by force is as good as the first",
        f"{SCRIPTS}/force.lua",
        "is_done and 'OK' or value",
        "value",
        f"{CONTRACT}/test_network.py::test_what_an_operator_asks_for_may_be_asked_twice",
    ),
    Mutant(
        "a copy of a request to stop is as good as the first",
        f"{CORE}/inspection/inspector.py",
        "if outcome is Outcome.RELEASED or (reply.was_retried and outcome is "
        "Outcome.ASKED_BEFORE):",
        "if outcome is Outcome.RELEASED:",
        f"{CONTRACT}/test_network.py::test_what_an_operator_asks_for_may_be_asked_twice",
    ),
    Mutant(
        "a timestamp is released by its holder alone",
        f"{SCRIPTS}/timestamp.lua",
        "  if value ~= token then\n    return false, value",
        "  if false then\n    return false, value",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_what_somebody_else_has_taken",
    ),
    Mutant(
        "a timestamp is renewed when memory is used up",
        f"{SCRIPTS}/timestamp.lua",
        "  redis.call('PEXPIRE', META, whole(lease + MEMORY))\n",
        "",
        f"{CONTRACT}/test_network.py::"
        "test_a_held_lock_is_renewed_and_released_when_memory_is_used_up",
    ),
    Mutant(
        "another's time in the place of ours is its own",
        f"{SCRIPTS}/timestamp.lua",
        "elseif (ends or 0) > 0 and value == value_for(ends) then",
        "elseif (ends or 0) > 0 then",
        f"{CONTRACT}/test_releasing.py::test_a_release_leaves_what_somebody_else_has_taken",
    ),
    Mutant(
        "a timestamp that is over is nobody's",
        f"{SCRIPTS}/timestamp.lua",
        "return (not ends or ends > now) and value",
        "return value",
        f"{WIRE}/test_timestamp.py::test_a_value_that_is_over_is_nobodys",
    ),
    Mutant(
        "a timestamp of another unit is no lock of ours",
        f"{SCRIPTS}/timestamp.lua",
        "return time and time >= EARLIEST and time < LATEST and time",
        "return time",
        f"{WIRE}/test_timestamp.py::test_what_is_no_time_in_its_unit_is_refused_and_left_alone",
    ),
    Mutant(
        "others find a timestamp held for the whole of its lease",
        f"{SCRIPTS}/timestamp.lua",
        "whole(math.ceil(ends / UNIT))",
        "whole(math.floor(ends / UNIT))",
        f"{WIRE}/test_timestamp.py::test_others_find_our_lock_held_for_the_whole_of_its_lease",
    ),
    Mutant(
        "another's timestamp is over when a later unit has begun",
        f"{SCRIPTS}/timestamp.lua",
        "math.floor(time / UNIT + 1) * UNIT",
        "time",
        f"{WIRE}/test_timestamp.py::test_the_time_of_another_is_over_when_a_later_unit_has_begun",
    ),
    Mutant(
        "another who writes the time that was ours has it for himself",
        f"{SCRIPTS}/timestamp.lua",
        "' @0 ', 'PX', MEMORY)",
        "' @' .. whole(now + 9000) .. ' ', 'PX', MEMORY)",
        f"{WIRE}/test_timestamp.py::"
        "test_the_other_has_it_and_nothing_that_comes_late_takes_it_away",
    ),
    Mutant(
        "a timestamp that is over vanishes a second later",
        f"{SCRIPTS}/timestamp.lua",
        "value * UNIT + STAYS - now_us / 1000",
        "ends - now_us / 1000 - STAYS",
        f"{WIRE}/test_timestamp.py::test_redis_removes_a_value_a_second_after_it_is_over",
    ),
    Mutant(
        "a fence of a timestamp grows though the clock was stepped back",
        f"{SCRIPTS}/timestamp.lua",
        "math.max(now_us, read_meta() + 1)",
        "now_us",
        f"{WIRE}/test_timestamp.py::test_a_fence_grows_although_the_clock_steps_back",
    ),
    Mutant(
        "a grant counts when enough replicas have it",
        f"{CORE}/locks/replicas.py",
        "if int(waited.value) >= count:",
        "if True:",
        "tests/redis/test_replicas.py::test_more_replicas_than_there_are_is_too_few",
    ),
    Mutant(
        "a waiter that asks no more is not shown",
        f"{SCRIPTS}/inspect.lua",
        "if alive and alive >= now then",
        "if alive then",
        f"{WIRE}/test_inspection.py::test_waiters_that_ask_no_more_are_neither_counted_nor_named",
    ),
    Mutant(
        "what others wrote in the place of ours hides no lock",
        f"{SCRIPTS}/inspect.lua",
        "return not (type(reply) == 'table' and reply.err) and reply",
        "return type(reply) == 'table' and reply.err and error(reply.err) or reply",
        f"{WIRE}/test_inspection.py::test_data_of_another_type_beside_it_does_not_hide_a_lock",
    ),
    Mutant(
        "a look at many locks keeps Redis from others for a moment alone",
        f"{SCRIPTS}/inspect.lua",
        "if spent >= BUDGET then",
        "if false then",
        f"{WIRE}/test_inspection.py::test_a_call_looks_at_fewer_locks_where_many_wait",
    ),
    Mutant(
        "a name that no lock can have is not shown as one that is awaited",
        f"{CORE}/inspection/reading.py",
        "is_name = found and name_in(_bytes(found[0])) is not None",
        "is_name = found",
        f"{WIRE}/test_inspection.py::test_nothing_said_of_a_wait_is_believed_that_cannot_be_so",
    ),
    Mutant(
        "a holder that lives again keeps its lock",
        f"{CORE}/inspection/inspector.py",
        "if _SEVERITY.get(seen.state, 0) < severity:",
        "if False:",
        f"{CONTRACT}/test_dead_holders.py::test_a_holder_that_has_renewed_again_keeps_the_lock",
    ),
    Mutant(
        "the drift of clocks is not relied on",
        f"{CORE}/locks/redlock.py",
        "answer.end -= drift(answer.lease)",
        "pass",
        f"{CONTRACT}/test_redlock.py::test_the_drift_of_clocks_is_not_relied_on",
    ),
    Mutant(
        "a taking without a majority leaves nothing",
        f"{CORE}/locks/redlock.py",
        "await self._cancel(io, in_doubt=reply.was_retried)",
        "pass",
        f"{CONTRACT}/test_redlock.py::test_who_gets_a_minority_gives_it_back",
    ),
    Mutant(
        "a majority of masters is needed",
        f"{CORE}/connections/quorum.py",
        "if len(granted) >= needed:\n            return granted[0]",
        "if granted:\n            return granted[0]",
        f"{CONTRACT}/test_redlock.py::test_who_gets_a_minority_gives_it_back",
    ),
    Mutant(
        "a lock that a majority of masters no longer has is lost",
        f"{CORE}/connections/quorum.py",
        "if len(marks) > count - needed:",
        "if False:",
        f"{CONTRACT}/test_redlock.py::test_what_a_majority_no_longer_has_is_lost",
    ),
    Mutant(
        "a cluster's slot that moves is waited for",
        f"{CORE}/connections/cluster.py",
        "return _PAUSE if is_patient else None",
        "return None",
        "tests/redis/test_cluster_moving.py::test_a_release_waits_for_a_slot_that_moves",
    ),
]
MUTANTS: list[Mutant] = [
    *HOLDING,
    *OPERATORS,
    *SEVERAL_SERVERS,
    *DOORS,
    *EDITING,
    *WAITING,
    *LOCKS,
    *RULES,
    *LAYERS,
]
