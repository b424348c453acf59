"""A Redis Cluster of several primaries, whose slots a test can move."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import redis
from redis.crc import key_slot

from django_setnx_lock.core import Inspector, RedisLock
from tests.processes import eventually
from tests.servers import RealServer, free_port
from tests.support.locks import command

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 16384


class Cluster:
    """``count`` primaries, each with an equal part of the slots."""

    def __init__(self, binary: str, count: int = 3) -> None:
        self.ports = [free_port() for _ in range(count)]
        self.nodes = [
            RealServer(
                binary,
                *("--cluster-enabled", "yes", "--cluster-port", str(port)),
                *("--cluster-node-timeout", "2000", "--enable-debug-command", "yes"),
            )
            for port in self.ports
        ]
        self._clients: list[redis.RedisCluster] = []
        self._tellers: dict[RealServer, redis.Redis] = {}

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def client(self, **options: Any) -> redis.RedisCluster:
        """Give a new client, closed at the end of :meth:`flush` and of the cluster."""
        client = redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port, **options)
        self._clients.append(client)
        return client

    @functools.cached_property
    def usual(self) -> redis.RedisCluster:
        """The client of :meth:`lock`, until :meth:`flush`."""
        return self.client()

    def lock(self, name: str = "lock:a", *args: Any, **options: Any) -> RedisLock:
        return RedisLock(self.usual, name, *args, **options)

    def inspector(self) -> Inspector:
        return Inspector(self.usual, "lock:")

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._close_clients()
        for teller in self._tellers.values():
            teller.close()
        self._stack.close()

    @contextlib.contextmanager
    def replica_of(self, primary: RealServer) -> Iterator[RealServer]:
        """Give another node that has a copy of what ``primary`` has."""
        port = free_port()
        options = ("--cluster-enabled", "yes", "--cluster-port", str(port))
        with RealServer(primary.binary, *options, "--cluster-node-timeout", "2000") as replica:
            own = self.id_of(primary)
            for node in self.nodes:
                self.tell(node, "MEET", "127.0.0.1", replica.port, port)
            eventually(lambda: any(one["node_id"] == own for one in self._known(replica)))
            self.tell(replica, "REPLICATE", own)
            eventually(lambda: self.teller(replica).info()["master_link_status"] == "up")
            eventually(
                lambda: all(
                    any("slave" in one["flags"] for one in self._known(node)) for node in self.nodes
                )
            )
            yield replica

    def _known(self, node: RealServer) -> list[dict[str, Any]]:
        return list(self.tell(node, "NODES").values())

    def _join(self) -> None:
        step = SLOTS // len(self.nodes)
        for number, node in enumerate(self.nodes):
            last = SLOTS - 1 if node is self.nodes[-1] else (number + 1) * step - 1
            self.tell(node, "SET-CONFIG-EPOCH", number + 1)
            self.tell(node, "ADDSLOTSRANGE", number * step, last)
        for node in self.nodes:
            for other, port in zip(self.nodes, self.ports, strict=True):
                if other is not node:
                    self.tell(node, "MEET", "127.0.0.1", other.port, port)
        eventually(lambda: all(self._agrees(node) for node in self.nodes))

    def _agrees(self, node: RealServer) -> bool:
        known = self.tell(node, "SLOTS")
        return len(known) == len(self.nodes) and self._is_up(node)

    def _is_up(self, node: RealServer) -> bool:
        return "ok" in str(self.tell(node, "INFO").get("cluster_state"))

    def tell(self, node: RealServer, *parts: Any) -> Any:
        """Send ``node`` a command of CLUSTER; give its reply."""
        return command(self.teller(node), "CLUSTER " + str(parts[0]), *parts[1:])

    def id_of(self, node: RealServer) -> str:
        return str(self.tell(node, "MYID").decode())

    def teller(self, node: RealServer) -> redis.Redis:
        """Give a client of ``node`` alone, closed at the end of the cluster."""
        if node not in self._tellers:
            self._tellers[node] = redis.Redis("127.0.0.1", node.port, socket_timeout=10)
        return self._tellers[node]

    def flush(self) -> None:
        """Forget every key and script, close the clients, and wait until no node is missed."""
        self._close_clients()
        eventually(lambda: all(map(self._is_up, self.nodes)))
        for node in self.nodes:
            node.flush()

    def _close_clients(self) -> None:
        self.__dict__.pop("usual", None)
        while self._clients:
            self._clients.pop().close()

    def slot_of(self, name: str) -> int:
        """Give the slot of the key ``name``."""
        return key_slot(name.encode())

    def names(self) -> list[str]:
        """Give the name of a lock at each of the nodes."""
        owners = {node: _ranges(self.tell(node, "NODES")) for node in self.nodes}
        found: dict[RealServer, str] = {}
        for number in range(1000):
            name = f"lock:{number}"
            slot = key_slot(name.encode())
            for node, slots in owners.items():
                if any(first <= slot <= last for first, last, *_ in slots):
                    found.setdefault(node, name)
        return [found[node] for node in self.nodes]

    def owner_of(self, slot: int) -> RealServer:
        """Give the node that has the slot, by its own word."""
        for node in self.nodes:
            for first, last, *_ in _ranges(self.tell(node, "NODES")):
                if first <= slot <= last:
                    return node
        raise AssertionError(f"nobody has the slot {slot}")

    def begin_move(self, slot: int, source: RealServer, target: RealServer) -> None:
        """Have the slot begin to move: ``source`` sends whoever asks for what it lacks on."""
        self.tell(target, "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.tell(source, "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move_keys(
        self, slot: int, source: RealServer, target: RealServer, *, pause: float = 0.0
    ) -> None:
        """Move what keys the slot has, a hundred at a time, ``pause`` seconds apart."""
        while keys := self.tell(source, "GETKEYSINSLOT", slot, 100):
            self.migrate(keys, source, target)
            time.sleep(pause)

    def migrate(self, keys: list[Any], source: RealServer, target: RealServer) -> None:
        """Move these keys, as ``redis-cli --cluster reshard --cluster-replace`` does.

        What a script makes between the look and the move may be made on the other side, too.
        """
        to = ("127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS")
        command(self.teller(source), "MIGRATE", *to, *keys)

    def end_move(self, slot: int, target: RealServer) -> None:
        """Have the slot belong to ``target``."""
        owner = self.id_of(target)
        for node in [target, *(node for node in self.nodes if node is not target)]:
            self.tell(node, "SETSLOT", slot, "NODE", owner)

    def move(self, slot: int, target: RealServer | None = None, *, pause: float = 0.0) -> None:
        """Move the slot to ``target``, as a resharding does; each step takes ``pause`` s more.

        Keys come and go meanwhile. Without ``target``, to the next node.
        """
        source = self.owner_of(slot)
        target = target or self.nodes[(self.nodes.index(source) + 1) % len(self.nodes)]
        self.begin_move(slot, source, target)
        time.sleep(pause)
        self.move_keys(slot, source, target)
        time.sleep(pause)
        self.move_keys(slot, source, target)
        self.end_move(slot, target)


def _ranges(known: dict[str, Any]) -> list[list[int]]:
    mine = next(one["slots"] for one in known.values() if "myself" in one["flags"])
    return [[int(part) for part in (*slots, slots[-1])] for slots in mine]
