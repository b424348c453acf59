"""The rules of what several hold together, one by one, as they stand in the scripts."""

from __future__ import annotations

from dataclasses import dataclass

from .shared_model import LONG, SHORT, Bounds


def bounds(
    kinds: str,
    befalls: str = "",
    faults: int = 1,
    leases: tuple[int, ...] = (LONG,) * 4,
    renews: bool = False,
) -> Bounds:
    return Bounds(
        kinds,
        faults if befalls else 0,
        frozenset(befalls.split()),
        leases=leases,
        renews=renews,
    )


@dataclass(frozen=True)
class Control:
    """A rule taken out: what goes wrong, within which bounds, and after how many steps.

    ``rule`` is what stands in the scripts, ``instead`` what is put there.
    """

    about: str
    rule: str
    instead: str
    wrong: str
    bounds: Bounds
    found: int


BRIEF = (SHORT, LONG, SHORT)
CONTROLS = [
    Control(
        "who comes later joins nobody before those who wait",
        "has_room(group, kind, limit) and not first_waiter()",
        "has_room(group, kind, limit)",
        "overtaken",
        bounds("wrr"),
        3,
    ),
    Control(
        "who finds it free leaves it to the first who waits",
        "if head and head ~= token then",
        "if false then",
        "overtaken",
        bounds("wrr", "crash", leases=BRIEF),
        6,
    ),
    Control(
        "no more join than there are permits",
        "(not limit or redis.call('ZCARD', SHARES) < limit)",
        "true",
        "two believers more",
        bounds("222"),
        6,
    ),
    Control(
        "only those of one kind are in it together",
        "return group == kind and",
        "return group and kind and",
        "two believers",
        bounds("r2"),
        4,
    ),
    Control(
        "a share that ran out is free",
        "redis.call('ZRANGEBYSCORE', SHARES, '-inf', whole(now_ms()))",
        "{}",
        "asleep",
        bounds("222", "crash", leases=BRIEF),
        11,
    ),
    Control(
        "what ran out is left to those who wait",
        "local given = group and admit(group) or false",
        "local given = false",
        "asleep",
        bounds("222", leases=BRIEF),
        10,
    ),
    Control(
        "what is returned is left to those who wait",
        "  local given = admit(group)\n  settle(value, last_fence())",
        "  local given = false\n  settle(value, last_fence())",
        "asleep",
        bounds("222"),
        8,
    ),
    Control(
        "the last who leaves hands on",
        "    local head = hand_on()\n    if was then",
        "    local head = false\n    if was then",
        "asleep",
        bounds("wr"),
        6,
    ),
    Control(
        "the first of a group lets in those behind it",
        "given = admit(group) or given",
        "given = given",
        "asleep",
        bounds("wrr"),
        11,
    ),
    Control(
        "the name stands until the last share is over",
        "redis.call('PEXPIREAT', NAME, whole(ends))",
        "do end",
        "two believers",
        bounds("wrr", leases=(SHORT, SHORT, LONG)),
        7,
    ),
    Control(
        "who waits is told of a lease that ends sooner than the last one did",
        "  if left < was then\n    wake_if_later(left)\n  end",
        "",
        "asleep",
        bounds("wrr", leases=(SHORT, LONG, SHORT)),
        9,
    ),
    Control(
        "who takes its place makes the first ask again that would sleep longer",
        "given = admit(group) or given\nwake_if_later(lease)",
        "given = admit(group) or given",
        "asleep",
        bounds("wwr", leases=(LONG, LONG, SHORT)),
        12,
    ),
    Control(
        "a writer that gives up tells those behind it",
        "wake_if_later(group_at(token_at(NAME)) and -1 or left)",
        "wake_if_later(left)",
        "asleep",
        bounds("wrr", "impatient"),
        7,
    ),
    Control(
        "the queue of one that was put back has an end of life",
        "      put_back(owner, alive, rank, again)\n      give_baton(next_one)",
        "      give_baton(next_one)\n      put_back(owner, alive, rank, again)",
        "left behind",
        bounds("wrr"),
        7,
    ),
    Control(
        "who gets in does not empty its mailbox",
        "-- The mailbox stays: this copy",
        "drop_mail(token) -- This copy",
        "asleep",
        bounds("wr", "again"),
        9,
    ),
    Control(
        "a release that is sent again tells again to whom it was left",
        "given = given or left_to(value)",
        "do end",
        "asleep",
        bounds("111", "again crash", 2),
        10,
    ),
    Control(
        "who gives up leaves the group and hands on",
        "(group or not value) and go_on(value) or left_to(value)",
        "false",
        "asleep",
        bounds("222", "cancel"),
        7,
    ),
    Control(
        "who gives up is not known to have a share",
        "redis.call('ZREM', SHARES, token, BATON .. token)\n  redis.call('HDEL', HOLDERS, token)",
        "do end",
        "ghost",
        bounds("222", "cancel"),
        3,
    ),
    Control(
        "what was given up is not taken by a late copy",
        "if is_gone and (slice > 0 or not value or held_until or is_left) then",
        "if false then",
        "ghost",
        bounds("wr", "again"),
        6,
    ),
    Control(
        "who does not wait and is refused takes nothing by a late copy",
        "if slice == 0 then",
        "if false then",
        "ghost",
        bounds("wr", "again fail-fast", 2),
        6,
    ),
    Control(
        "each share has a fence above all before it",
        "own = own and tonumber(own) or math.max(now_us(), (fence or 0) + 1)",
        "own = own and tonumber(own) or now_us()",
        "fence",
        bounds("rr", "clock"),
        3,
    ),
    Control(
        "an acquire that is sent again has the fence that it had",
        "own = own and tonumber(own) or",
        "own =",
        "fence",
        bounds("rr", "again"),
        2,
    ),
    Control(
        "a release that was applied is known to be",
        "    redis.call('SET', TOMBSTONE, 'released', 'PX', MEMORY)\n  end\n  return {'OK', go_on",
        "  end\n  return {'OK', go_on",
        "false loss",
        bounds("rw", "again", 2),
        6,
    ),
    Control(
        "a release that was applied is known to be, by that it comes again",
        "mark = ARGV[2] == 'again' and not",
        "mark = false and not",
        "false loss",
        bounds("rw", "again"),
        5,
    ),
    Control(
        "a share that is over is remembered as lost",
        "    remember_loss(token)\n  end\n  if redis",
        "  end\n  if redis",
        "false success",
        bounds("rr", "again stall", 2, leases=(SHORT, LONG)),
        7,
    ),
    Control(
        "the shares of a group that is over are remembered as lost",
        "    remember_loss(token)\n  end\n  redis.call('DEL', SHARES, HOLDERS)",
        "  end\n  redis.call('DEL', SHARES, HOLDERS)",
        "false success",
        bounds("rr", "again stall", 2),
        7,
    ),
    Control(
        "who goes on where no group was does not say that the last holder let go",
        "    if was then\n      let_go(was)",
        "    local _, last = read_meta(token_at(META) or '')\n    if last then\n      let_go(last)",
        "false success",
        bounds("wr", "again stall cancel", 3),
        8,
    ),
    Control(
        "who is followed by a group without having let go is remembered as lost",
        "  note_lost(meta, owner)\n  drop_shares()",
        "  drop_shares()",
        "false success",
        bounds("wr", "again stall", 2),
        7,
    ),
    Control(
        "a forced share is remembered as such",
        "redis.call('SET', TOMBSTONE, ARGV[1], 'PX', whole(math.max(left",
        "redis.call('SET', TOMBSTONE .. 'x', ARGV[1], 'PX', whole(math.max(left",
        "ghost waiter",
        bounds("rw", "again force", 2),
        7,
    ),
    Control(
        "who takes shares away hands on",
        "return {'OK', go_on(value)}\n",
        "return {'OK', false}\n",
        "asleep",
        bounds("222", "force"),
        8,
    ),
]
