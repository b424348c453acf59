from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.redis.clusters import Cluster
from tests.servers import any_binary

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def running_masters() -> Iterator[Cluster]:
    """Give a cluster of three primaries; to bring it up takes some seconds."""
    with Cluster(any_binary()) as cluster:
        yield cluster


@pytest.fixture
def masters(running_masters: Cluster) -> Iterator[Cluster]:
    """Give a cluster of three primaries, empty; where its slots are is not known."""
    running_masters.flush()
    yield running_masters
    running_masters.flush()
