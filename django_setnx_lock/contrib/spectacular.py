"""The answers of locked views in the schemas that drf-spectacular makes."""

from __future__ import annotations

from typing import Any

from drf_spectacular import openapi

from .. import responses
from ..arguments import behind_api_view
from ..decorators import options_of

_RETRY_AFTER = {
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}
}


class LockedSchemaMixin:
    """Adds 409 and 503 to what a view answers whose method, action or dispatch is locked.

    For an ``AutoSchema`` of drf-spectacular, before it; :class:`AutoSchema` has it. What the view
    says of these statuses itself, as by ``@extend_schema``, stays.
    """

    method: str
    view: Any

    def _get_response_bodies(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Override drf-spectacular's hook."""
        bodies: dict[str, Any] = super()._get_response_bodies(*args, **kwargs)  # type: ignore[misc]  # of the other base
        name = getattr(self.view, "action", None) or self.method.lower()
        handler = behind_api_view(getattr(type(self.view), name, None))
        if options_of(handler) or options_of(type(self.view).dispatch):
            for status, says in (("409", responses.BUSY), ("503", responses.UNAVAILABLE)):
                bodies.setdefault(status, {"description": str(says), "headers": _RETRY_AFTER})
        return bodies


class AutoSchema(LockedSchemaMixin, openapi.AutoSchema):
    """drf-spectacular's, with the answers of locked views."""
