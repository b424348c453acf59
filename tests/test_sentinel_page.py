"""docs/sentinel.md beside the code that it tells of."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from tests.redis.sentinels import documented

ROOT = Path(__file__).parents[1]


def test_the_settings_on_the_page_pass_the_checks() -> None:
    with override_settings(CACHES=documented(), SETNX_LOCK={"CACHE": "locks", "REPLICAS": 1}):
        found = [f"{one.id} {one.msg}" for one in run_checks()]

    # Celery makes tasks of other tests, which name no cache of the page, when it likes.
    ours = [one for one in found if one.startswith("django_setnx_lock")]
    assert [one for one in ours if "The task tests." not in one] == []


@pytest.mark.parametrize("page", ["docs/redis.md", "docs/replicas.md"])
def test_the_page_is_linked_from_the_others(page: str) -> None:
    assert "sentinel.md" in ROOT.joinpath(page).read_text()
