"""How this project's caches find the embedded server."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from django_redis.pool import ConnectionFactory  # noqa: TID251 - a project may; the app may not
from redis.connection import parse_url

from example_project.embedded import ensure_server

if TYPE_CHECKING:
    from redis import Redis


class EmbeddedConnectionFactory(ConnectionFactory):  # type: ignore[misc] # it is untyped
    """Reads the LOCATION ``embedded:///N`` as database N of the server that ensure_server() gives.

    The server is asked for with the first connection: commands that need none start none.
    """

    def connect(self, url: str) -> Redis:
        number = int(urlsplit(url).path.strip("/"))
        client: Redis = super().connect(database_url(ensure_server(), number))
        return client


def database_url(server: str, number: int) -> str:
    """Return the URL of the database that comes ``number`` after the one that ``server`` names."""
    address, _, query = server.partition("?")
    named = parse_url(server).get("db", 0)  # type: ignore[no-untyped-call] # it is untyped
    return f"{address}?{urlencode({**dict(parse_qsl(query)), 'db': named + number})}"
