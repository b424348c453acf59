from __future__ import annotations

import pytest

from example_project.caches import database_url


@pytest.mark.parametrize(
    ("server", "number", "expected"),
    [
        ("unix:///run/x/redis.sock", 0, "unix:///run/x/redis.sock?db=0"),
        ("unix:///run/x/redis.sock", 1, "unix:///run/x/redis.sock?db=1"),
        ("redis://:pa%2Fss@h:6379", 1, "redis://:pa%2Fss@h:6379?db=1"),
        ("redis://h:6379/5", 1, "redis://h:6379/5?db=6"),
        ("redis://h?db=2&health_check_interval=3", 1, "redis://h?db=3&health_check_interval=3"),
    ],
)
def test_a_cache_s_database_is_counted_from_the_one_named(
    server: str, number: int, expected: str
) -> None:
    assert database_url(server, number) == expected
