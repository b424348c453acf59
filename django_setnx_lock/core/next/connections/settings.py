"""Which of a client's settings our connections take."""

from __future__ import annotations

from typing import Any

from redis.backoff import NoBackoff
from redis.retry import Retry

# How long connecting, sending and an answer may take each where the client sets no limit.
LIMIT = 5.0
# What redis-py 7 and later tell of a server's maintenance refers to the pool, which would live for
# as long as its connections then.
_OF_THE_POOL = frozenset(
    {
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "oss_cluster_maint_notifications_handler",
    }
)


def settings_of(pool: Any) -> dict[str, Any]:
    """Return what a connection to the server of redis-py's ``pool`` is made with.

    Nothing is tried again below us: the retry is ours. Replies are bytes.
    """
    options = {
        name: value for name, value in pool.connection_kwargs.items() if name not in _OF_THE_POOL
    }
    limit = options.get("socket_timeout") or LIMIT
    return options | {
        "socket_timeout": limit,
        "socket_connect_timeout": options.get("socket_connect_timeout") or limit,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "decode_responses": False,
    }
