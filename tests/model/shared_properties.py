"""What must hold in every state of a lock that several hold together."""

from __future__ import annotations

from .shared_server import FOREIGN, Server
from .shared_world import READER, WRITER, Client, World

# Who was to see to the lock for all did not, and the one to be seen to was killed or late.
TWO_SILENT = "asleep until a slice ends, as two clients fell silent"


def violation(w: World, server: Server) -> str:
    """The kind of violation that the state is, or ""; see also ``Model.asleep``."""
    return w.wrong or server.wrong or believers(w, server) or ghost(w, server) or in_vain(w, server)


def believers(w: World, server: Server) -> str:
    # An operator's force-release breaks exclusion knowingly until the old holder has learned it.
    found = [c for c in w.clients if c.belief and c.token not in w.forced]
    names = " and ".join(client.name for client in found)
    if found and server.value == FOREIGN:
        return f"two believers: {names} and {FOREIGN}"
    if len(found) < 2:
        return ""
    kinds = {client.kind for client in found}
    if WRITER in kinds or len(kinds) > 1:
        return f"two believers: {names}"
    if READER not in kinds and len(found) > int(kinds.pop()):
        return f"two believers more than there are permits: {names}"
    return ""


def ghost(w: World, server: Server) -> str:
    """It is held by, left to or waited for by a caller that is alive and will not see to it."""
    for token in server.holders:
        if _is_nobodys(w, token):
            return "ghost holder"
    for token in server.left_to:
        if _is_nobodys(w, token):
            return "gone: it is left to one who has left"
    for token in server.queue:
        if server.is_lapsed(token):
            continue
        client = w.clients[w.number_of(token)]
        if client.token == token and client.pc == "hold" and client.belief:
            return "ghost waiter: one who has it is waited for"
        if _is_nobodys(w, token):
            return "ghost waiter: one who has left is waited for"
    return ""


def in_vain(w: World, server: Server) -> str:
    for client in w.clients:
        if client.belief and client.token not in (*server.holders, *w.forced):
            return "believes in vain"
    return ""


def _is_nobodys(w: World, token: str) -> bool:
    client = w.clients[w.number_of(token)]
    return client.pc not in ("dead", "vanished") and not client.owns(token)


def overtaken(w: World, server: Server, token: str) -> str:
    """Whether somebody who waits had come before ``token``, which has just got in."""
    before = w.order[: w.order.index(token)] if token in w.order else w.order
    for other in before:
        client = w.clients[w.number_of(other)]
        is_served = other in server.left_to or other in server.holders or other in w.over
        if client.token == other and client.queues() and not is_served:
            return "overtaken"
    return ""


def is_to_be_had(server: Server, client: Client) -> bool:
    """Whether nobody is in the way of ``client``, who waits, nor waits before it."""
    before = (
        server.queue[: server.queue.index(client.token)] if client.token in server.queue else ()
    )
    if not all(map(server.is_lapsed, before)):
        return False
    in_it = [*server.holders, *server.left_to]
    if not server.value or (server.is_group and not in_it):
        return True
    group = READER if server.value.startswith("readers:") else "permits"
    kind = client.kind if client.kind in (READER, WRITER) else "permits"
    has_room = kind == READER or (kind == "permits" and len(in_it) < int(client.kind))
    return server.is_group and group == kind and has_room
