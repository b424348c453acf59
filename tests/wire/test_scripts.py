"""The scripts, on what other programs wrote at a lock's keys, and any names."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock.core.protocol import kinds
from tests.support.locks import command, text
from tests.wire.running import BESIDE, INDEX, RECORD, TOKENS, Wire, box, keys

if TYPE_CHECKING:
    from tests.servers import RealServer

OF_PROTOCOL = {"setnx": TOKENS, "timestamp-ms": ("time:w1",), "hosted": ("poll-w1",)}
# What is sent by callers with the plain protocol alone, and by those on no hosted server.
PLAIN_ALONE, NOT_HOSTED = {"swap", "deadlock", "renew_alone"}, {"several"}
TYPES: dict[str, tuple[str, ...]] = {
    "string": ("SET", "paid"),
    "hash": ("HSET", "42", "paid", "w1", "paid", "read:w1", "paid"),
    "list": ("RPUSH", "w1", "w2"),
    "set": ("SADD", "w1", "w2"),
    "zset": ("ZADD", "inf", "w1", "-inf", "w2", "1.5", "read:w1"),
    "stream": ("XADD", "*", "w1", "paid"),
}
# What a hash or a string may have in the place of ours.
ALIVE = 10**15
TEXTS = (
    *("", " ", "paid", "0", "-1", "1e400", "nan", "9" * 40, "1 2 3", "1 2 3 4", "\xff\x00"),
    *("1 w1", "1 w1 {", "5 read:w1 {}", "1 2 3 99999999999999999999 box", "w1", "kept:1"),
    *("readers:1", "readers:x", "permits:9"),
    *(f"{ALIVE} 1 1 3 box {{}}", f"{ALIVE} {ALIVE} {ALIVE} 3 box {{}}"),
)


def everything(token: str) -> list[tuple[str, ...]]:
    """Return every request, as who waits or has the lock, or saw it held, may send it."""
    waits = (token, "1000", RECORD, "1000", "{lock:a}:wake:1")
    return [
        ("acquire", token, "1000", RECORD, "0", ""),
        ("acquire", *waits),
        ("several", token, "1000", RECORD, "0", ""),
        *(("release", token, how) for how in ("", "repeat", "cancel", "doubt")),
        ("release", token, "", "500"),
        *(("renew", token, ms) for ms in ("-1", "0", "5000")),
        ("look", f"{token} w2"),
        ("force", token, '{"by":"ann"}'),
        ("stop", token, '{"by":"ann"}'),
        ("swap", token, "w9", "1", "1000", RECORD),
        ("deadlock", token, "1000", RECORD, "w2"),
        ("renew_alone", token, "5000"),
        ("locked",),
        ("taken",),
        ("inspect", "9"),
    ]


def put(client: redis.Redis, key: str, kind: str) -> None:
    redis_command, *words = TYPES[kind]
    client.delete(key)
    command(client, redis_command, key, *words)


def requests_of(protocol: str, token: str) -> list[tuple[str, ...]]:
    left_out = set() if protocol == "setnx" else PLAIN_ALONE
    left_out |= NOT_HOSTED if protocol == "hosted" else set()
    return [request for request in everything(token) if request[0] not in left_out]


def is_told_clearly(client: redis.Redis, request: tuple[str, ...], protocol: str = "setnx") -> bool:
    """Return whether a request is answered, or refused for the type of a key."""
    name, *args = request
    script = kinds.script_of(name, protocol=protocol)
    at = script.keys_for(keys())
    try:
        client.eval(script.source, len(at), *at, *args)
    except redis.ResponseError as error:
        return "WRONGTYPE" in str(error)
    return True


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in ("string", "zset") else pytest.mark.matrix)
        for kind in TYPES
    ],
)
def test_data_of_another_type_is_left_and_said_so(real_server: RealServer, kind: str) -> None:
    client = real_server.client()
    told = [
        (protocol, request)
        for protocol, tokens in OF_PROTOCOL.items()
        for token in tokens
        for request in requests_of(protocol, token)
    ]
    for key in ("lock:a", *(f"{{lock:a}}:{end}" for end in BESIDE), INDEX):
        for protocol, request in told:
            client.flushall()
            put(client, key, kind)
            before = client.dump(key)
            assert is_told_clearly(client, request, protocol), (key, protocol, request)
            if key == "lock:a" and kind != "string":
                assert client.dump(key) == before
            # Nothing is left that has no end, but what was there.
            left = {text(one) for one in client.keys("*") if client.pttl(one) == -1}
            assert left <= {key, INDEX}, (key, protocol, request)


def test_a_lock_is_had_and_let_go_whatever_is_in_the_place_of_its_index(wire: Wire) -> None:
    wire.client.set(INDEX, "paid")
    assert wire.ask("w1", 1000)[0] == b"OK"
    assert wire.run("renew", "w1", "2000")[0] == b"OK"
    assert wire.run("release", "w1", "")[0] == b"OK"


def test_nothing_is_granted_where_the_fence_has_another_type(wire: Wire) -> None:
    put(wire.client, "{lock:a}:meta", "hash")
    for token in TOKENS:
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            wire.ask(token, 1000)
        assert not wire.client.exists("lock:a")


def test_texts_that_others_wrote_break_no_script(real_server: RealServer) -> None:
    client, chance = real_server.client(), random.Random(7)  # noqa: S311 - the same each time
    for _ in range(400):
        client.flushall()
        for end in BESIDE:
            if chance.random() < 0.5:
                continue
            key, written = f"{{lock:a}}:{end}", chance.choice(TEXTS)
            if end == "meta":
                client.set(key, written)
            elif end in ("waiting", "holders", "forced"):
                client.hset(
                    key, mapping={chance.choice((*TOKENS, "w2", "")): written for _ in "12"}
                )
            else:
                score = chance.choice((1, -1, 1e18, 1e300, float("inf"), 1.5, 10**15))
                client.zadd(key, {chance.choice((*TOKENS, "w2", "")): score})
        if chance.random() < 0.8:
            client.set("lock:a", chance.choice((*TEXTS, "read:w1")))
        for request in everything(chance.choice(TOKENS)):
            assert is_told_clearly(client, request), request


@pytest.mark.parametrize("name", ["a b", "\n", "ü ß", "1 2 3", "a:b", "%s %d", "'\"\\"])
def test_a_waiter_for_any_name_is_given_the_lock_at_its_mailbox(wire: Wire, name: str) -> None:
    lock = Wire(wire.client, name)
    lock.take("w1")
    lock.queue("w2")

    assert lock.let_go("w1") == ["w2"]
    assert wire.client.lrange(box("w2", name), 0, -1) == [b"w2"]
    assert lock.ask("w3")[2] == RECORD.encode()


@pytest.mark.parametrize("token", TOKENS)
def test_who_is_asked_to_stop_hears_it_when_it_asks(wire: Wire, token: str) -> None:
    wire.ask(token, 1000)
    assert len(wire.run("renew", token, "-1")) == 2
    request = '{"by":"ann","reason":"a \\"b\\""}'
    assert wire.run("stop", "other", request) == [b"CHANGED"]
    assert wire.run("stop", token, request) == [b"OK"]
    assert wire.run("stop", token, request) == [b"BEFORE"]

    for ms in ("-1", "0", "2000"):
        record = json.loads(wire.run("renew", token, ms)[2])
        assert record.pop("stop").keys() == {"by", "reason", "at"}
        assert record == json.loads(RECORD)


def test_late_copies_of_a_lock_that_was_taken_over_do_nothing(wire: Wire) -> None:
    took = ("acquire", "w1", "1000", RECORD, "0", "")
    _, fence = wire.run(*took)
    swap = ("swap", "w1", "w2", str(fence), "9000", RECORD)
    reply = [b"OK", b"%d" % fence, b"listed", None]
    assert wire.run(*swap) == wire.run(*swap) == reply
    assert 8000 < wire.client.pttl("lock:a") <= 9000
    record = str(text(wire.client.get("{lock:a}:meta"))).split(" w2 ")[1]
    assert json.loads(record)["since"] > 0
    # Another with the same ticket, and who gave it away.
    assert wire.run("swap", "w1", "w3", *swap[3:])[0] == b"LOST"
    assert wire.run("release", "w1", "")[0] == b"LOST"
    assert wire.run("release", "w2", "") == [b"OK"]

    assert wire.run(*swap)[0] == b"LOST"
    assert wire.run(*took) == [b"GONE"]
    assert not wire.client.exists("lock:a")


def test_who_took_a_lock_over_in_vain_has_it_in_no_copy(wire: Wire) -> None:
    _, fence = wire.ask("w1", 1000)
    wire.run("release", "w2", "doubt")
    swap = ("swap", "w1", "w2", str(fence), "9000", RECORD)
    assert wire.run(*swap) == [b"LOST", None]
    assert text(wire.client.get("lock:a")) == "w1"


def test_a_check_changes_nothing(wire: Wire) -> None:
    wire.ask("w1", 1000)
    wire.client.persist("lock:a")
    wire.client.delete(INDEX)
    assert wire.run("renew", "w1", "-1") == [b"OK", -1]
    assert wire.client.pttl("lock:a") == -1
    assert not wire.client.exists(INDEX)


def test_several_are_taken_as_far_as_they_go(wire: Wire) -> None:
    at = ("{s}a", "{s}:{s}a:meta", "{s}b", "{s}:{s}b:meta", INDEX)
    request = ("1000", RECORD, "0", "")
    assert [len(reply) for reply in wire.run("several", "w1", *request, at=at)] == [2, 2]
    assert wire.run("several", "w1", *request, at=at)[1][0] == b"OK"
    wire.run("release", "w1", "", at=at[:2])

    left, busy = wire.run("several", "w2", *request, at=at)
    assert (left, busy[0]) == ([b"LEFT"], b"BUSY")
    assert not wire.client.exists("{s}a")


def test_mail_of_who_asks_just_now_may_lie_unread(wire: Wire) -> None:
    wire.take()
    wire.queue("first", is_asleep=False)
    wire.queue("second")

    assert wire.let_go() == ["first"]
    wire.look("first")

    assert wire.client.get("lock:a") == b"first"


def test_who_was_roused_counts_as_awake_until_it_listens_again(wire: Wire) -> None:
    wire.take()
    wire.queue("first", "roused")
    wire.let_go()
    wire.client.delete(box("first"))
    assert wire.look("first") == ["roused"]
    wire.queue("last")

    assert wire.let_go("first", "cancel") == ["roused"]
    wire.look("roused")

    assert wire.client.get("lock:a") == b"roused"
