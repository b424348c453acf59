"""System checks of the admin's locked actions, one function each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.admin.sites import all_sites
from django.core.checks import CheckMessage, Tags, register
from django.core.checks import Warning as CheckWarning

from ..core.keytemplate import KeyTemplate
from .release import ReleaseLocksMixin


@register(Tags.admin)
def check_action_templates(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W003: a model has what the key templates of its admin name."""
    return [
        CheckWarning(
            f"The key template {template.text!r} takes <{root}> from {modeladmin.opts.label}, "
            "which has no such attribute.",
            hint="Rows without it are skipped. See docs/checks.md#w003.",
            obj=type(modeladmin),
            id="django_setnx_lock.W003",
        )
        for modeladmin, template in _templates()
        for root in sorted(template.roots)
        if not hasattr(modeladmin.model, root)
    ]


def _templates() -> Iterator[tuple[Any, KeyTemplate]]:
    for site in all_sites:
        for modeladmin in site._registry.values():
            if isinstance(modeladmin, ReleaseLocksMixin):
                yield modeladmin, KeyTemplate(modeladmin.lock_template)
            for action in modeladmin.actions or ():
                found = getattr(modeladmin, action, None) if isinstance(action, str) else action
                template = getattr(found, "lock_template", None)
                if isinstance(template, KeyTemplate):
                    yield modeladmin, template
