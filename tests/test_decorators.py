"""``@locked`` on functions, methods and coroutine functions."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.utils.functional import SimpleLazyObject

from django_setnx_lock import LockBusy, LockLost, LockUnavailable, lock, locked, redis_lock
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.servers import FakeServer

pytestmark = pytest.mark.usefixtures("fake_connections")


def state(key: str = "order:42") -> str:
    return "locked" if lock(key).client.exists(f"lock:{key}") else "open"


@locked("order:<pk>")
def charge(pk: int, *, twice: bool = False) -> str:
    """Charge an order."""
    return state(f"order:{pk}")


@locked("order:<pk>")
async def acharge(pk: int) -> str:
    return state(f"order:{pk}")


def test_a_function_runs_under_its_lock_and_lets_it_go() -> None:
    assert inspect.iscoroutinefunction(acharge)
    assert (charge(42), state(), asyncio.run(acharge(42)), state()) == ("locked", "open") * 2
    assert inspect.unwrap(charge)(42) == "open"


def test_the_lock_is_let_go_when_a_function_raises() -> None:
    @locked("order:<pk>")
    def fail(pk: int) -> None:
        raise KeyError(pk)

    with pytest.raises(KeyError):
        fail(42)

    assert state() == "open"


def test_a_decorated_function_keeps_its_name_docstring_and_signature() -> None:
    assert (charge.__name__, charge.__doc__) == ("charge", "Charge an order.")
    assert list(inspect.signature(charge).parameters) == ["pk", "twice"]


def passing_on(func: Any) -> Any:
    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


def pay(pk: int = 42, **more: object) -> str:
    return state()


class Till:
    number = 42

    def open(self, pk: int) -> str:
        return state()

    @classmethod
    def count(cls, pk: int) -> str:
        return state()

    def __call__(self, pk: int) -> str:
        return state()

    @locked("order:<pk>")
    def charge(self, pk: int) -> str:
        return state()

    @locked("order:<self.number>")
    def by_attribute(self) -> str:
        return state()

    @staticmethod
    @locked("order:<pk>")
    def static(pk: int) -> str:
        return state()


def of_order(order: Till) -> str:
    return state()


by_pk: Any = locked("order:<pk>")
CALLS: dict[str, Callable[[], object]] = {
    "by position": lambda: by_pk(pay)(42),
    "by keyword": lambda: by_pk(pay)(pk=42),
    "by default": lambda: by_pk(pay)(),
    "beyond the parameters": lambda: locked("order:<number>")(pay)(number=42),
    "an attribute": lambda: locked("order:<order.number>")(of_order)(Till()),
    "below a decorator": lambda: by_pk(passing_on(passing_on(pay)))(42),
    "a partial": lambda: by_pk(partial(pay, shop="north"))(pk=42),
    "a bound method": lambda: by_pk(Till().open)(42),
    "a class method": lambda: by_pk(Till.count)(42),
    "a callable object": lambda: by_pk(Till())(42),
    "a method": lambda: Till().charge(42),
    "an attribute of the object": lambda: Till().by_attribute(),
    "a static method": partial(Till.static, 42),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_kind_of_call_fills_the_key(call: Callable[[], object]) -> None:
    assert call() == "locked"


def test_a_builtin_can_have_a_lock_that_names_nothing() -> None:
    assert locked("all")(max)(1, 2) == 2


def test_a_value_cannot_reach_into_the_next_one() -> None:
    @locked("<shop>:<order>")
    def sell(shop: str, order: str) -> str:
        return state("a%3Ab:c")

    assert sell("a:b", "c") == "locked"


def test_a_lazy_argument_that_names_nothing_is_not_evaluated() -> None:
    evaluated: list[str] = []

    @locked("all")
    def look(row: object) -> None: ...

    look(SimpleLazyObject(lambda: evaluated.append("query")))

    assert evaluated == []


def test_a_call_that_the_function_does_not_take_is_refused_before_the_lock(
    fake_server: FakeServer,
) -> None:
    fake_server.connected = False

    with pytest.raises(TypeError, match="pk"):
        charge()  # type: ignore[call-arg]  # the mistake under test


def test_a_busy_function_raises_with_the_holder() -> None:
    decorate: Any = locked("order:<pk>", blocking_timeout=0)
    run, arun = decorate(charge), decorate(acharge)
    calls: list[Callable[[], object]] = [lambda: run(42), lambda: asyncio.run(arun(42))]

    for call in calls:
        with lock("order:42", label="first"), pytest.raises(LockBusy) as caught:
            call()

        assert caught.value.holder is not None
        assert caught.value.holder.label == "first"


def test_a_function_waits_as_long_as_the_setting_says() -> None:
    lock("order:42", timeout=1, renew=False, reentrant=False).take(0)
    with override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": 0}), pytest.raises(LockBusy):
        charge(42)

    assert charge(42) == "locked"


def test_a_function_goes_on_with_the_lock_of_its_caller() -> None:
    with override_settings(SETNX_LOCK={}), lock("order:42") as held:
        assert charge(42) == "locked"
        held.check()


def test_a_function_raises_when_redis_cannot_say(fake_server: FakeServer) -> None:
    fake_server.connected = False

    with pytest.raises(LockUnavailable):
        charge(42)


def test_a_function_whose_lock_was_lost_raises(fake_server: FakeServer) -> None:
    @locked("order:<pk>")
    def run(pk: int) -> None:
        fake_server.client().delete(f"lock:order:{pk}")

    with pytest.raises(LockLost):
        run(42)


def test_the_options_are_those_of_lock(fake_server: FakeServer) -> None:
    @locked("order:<pk>", timeout=300, min_hold=20, note="monthly")
    def run(pk: int) -> str:
        (busy,) = [caught_busy(f"order:{pk}")]
        assert 290 < fake_server.client().ttl(f"lock:order:{pk}") <= 300
        return str(busy.holder)

    assert f"(function {__name__}.{run.__qualname__}; monthly)" in run(42)
    assert state() == "locked"


def caught_busy(key: str) -> LockBusy:
    with pytest.raises(LockBusy) as caught:
        lock(key, reentrant=False).take(0)
    return caught.value


def test_calls_that_are_shared_run_at_the_same_time_and_no_more_than_the_limit() -> None:
    @locked("report", shared=True)
    def read() -> bool:
        return any_lock("report", shared=True, reentrant=False).acquire(blocking=False)

    @locked("exports", limit=2, blocking_timeout=0)
    def export(within: int) -> None:
        if within:
            export(within - 1)

    assert read()
    export(1)
    with pytest.raises(LockBusy):
        export(2)


def test_a_lock_that_blocks_is_refused_in_an_event_loop_as_the_orm_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        with lock("order:42"):
            pass

    with pytest.raises(SynchronousOnlyOperation, match="use the method with the prefix a"):
        asyncio.run(work())
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    asyncio.run(work())


async def async_rows(pk: int) -> AsyncIterator[int]:
    yield pk


def rows(pk: int) -> Iterator[int]:
    yield pk


def by_order(request: HttpRequest, order_id: int) -> HttpResponse:
    return HttpResponse()


async def pk_later(request: HttpRequest, pk: int) -> str:
    return f"o:{pk}"


def asked(self: object, name: str) -> None:
    raise AssertionError(f"asked for {name}")


def task_of(module: str) -> Any:
    return type("Task", (), {"__module__": module, "__call__": print, "__getattr__": asked})()


def given(made: Any) -> Any:
    return made


def never(*args: object) -> None:
    raise AssertionError("not reached")


by_view: Any = redis_lock("o:<pk>")
bare: Any = redis_lock
no_key: Any = locked
# Of the decorators alone; the options of lock() are refused as there.
REFUSED: list[tuple[Callable[[], object], str]] = [
    *(
        (partial(redis_lock, template), "template|key")
        for template in ("", "order:<pk", "order:<>", "<a><b>")
    ),
    (partial(bare, "o:<pk>", on_busy="raise"), "on_busy is a callable"),
    (partial(bare, "o:<pk>", methods="POST"), "methods are several"),
    (bare, "redis_lock needs a key: write redis_lock"),
    (no_key, "locked needs a key"),
    (partial(bare(by_order), HttpRequest()), "redis_lock decorates functions, not <HttpRequest>"),
    (partial(bare("o:42"), 42), "redis_lock decorates functions, not 42"),
    (partial(bare, pk_later), "a callable that gives a key must not be async"),
    (partial(by_view, by_order), r"names <pk>, but .*by_order takes request, order_id$"),
    (partial(by_view, passing_on(by_order)), r"names <pk>, but .*by_order takes"),
    (partial(locked("cart:<user.pk>"), by_order), r"names <user.pk>, but .*by_order takes"),
    (partial(by_view, Till), r'@method_decorator\(redis_lock\(...\), name="dispatch"\)'),
    (partial(by_view, rows), r"rows is a generator.*with lock"),
    (partial(by_view, async_rows), r"rows is a generator.*async with lock"),
    (partial(by_view, staticmethod(pay)), "put redis_lock below @staticmethod"),
    (partial(by_view, classmethod(print)), "put redis_lock below @classmethod"),
    *(
        (partial(by_view, task_of(module)), "put redis_lock below the decorator that makes the")
        for module in ("celery.app.task", "dramatiq.actor", "huey.api", "django.tasks.base")
    ),
    (partial(by_view(pay), 42), r"called without a request .* decorate .* with @locked"),
    *(
        (locked(partial(given, made))(never), r"the keys of .*never are .*: give a str, or")
        for made in (None, "", [], [1], 42)
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_locked_so_is_refused_with_what_to_write(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_several_keys_are_taken_all_or_none() -> None:
    @locked("account:<a>", lambda a, b: f"account:{b}", blocking_timeout=0)
    def move(a: int, b: int) -> list[str]:
        return [state(f"account:{one}") for one in (a, b)]

    assert move(1, 2) == ["locked", "locked"]
    with lock("account:2"):
        with pytest.raises(LockBusy) as caught:
            move(1, 2)
        assert (caught.value.key, state("account:1")) == ("account:2", "open")


def test_a_callable_may_give_several_keys_of_what_it_is_called_with() -> None:
    @locked(lambda *accounts, by: [f"account:{one}" for one in accounts])
    def settle(*accounts: int, by: str) -> list[str]:
        return [state(f"account:{one}") for one in accounts]

    assert settle(1, 2, 3, by="ann") == ["locked"] * 3
