from __future__ import annotations

import pytest
from django.contrib.auth.models import Group


@pytest.fixture(autouse=True)
def _listed(listed_at_once: None) -> None:
    """Have the list show what is held, however short."""


@pytest.fixture
def groups(db: None) -> list[Group]:
    return [Group.objects.create(name=name) for name in ("ann", "bob", "cyd")]
