"""The answers of locked views in the schemas that drf-spectacular makes."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular import openapi

from ..decorators import options_of
from ..url_checks import behind_api_view

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
        """The hook of drf-spectacular."""
        bodies: dict[str, Any] = super()._get_response_bodies(*args, **kwargs)  # type: ignore[misc]  # of the other base
        if self._is_locked():
            busy = _("Somebody else is working on this right now. Please try again in a moment.")
            down = _("This cannot be done at the moment. Please try again later.")
            for status, says in (("409", busy), ("503", down)):
                bodies.setdefault(status, {"description": says, "headers": _RETRY_AFTER})
        return bodies

    def _is_locked(self) -> bool:
        name = getattr(self.view, "action", None) or self.method.lower()
        handler = getattr(type(self.view), name, None)
        dispatch = type(self.view).dispatch
        return bool(options_of(behind_api_view(handler)) or options_of(dispatch))


class AutoSchema(LockedSchemaMixin, openapi.AutoSchema):
    """drf-spectacular's, with the answers of locked views."""
