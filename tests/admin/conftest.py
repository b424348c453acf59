from __future__ import annotations

import pytest
from django.contrib.auth.models import Group


@pytest.fixture
def groups(db: None) -> list[Group]:
    return [Group.objects.create(name=name) for name in ("ann", "bob", "cyd")]
