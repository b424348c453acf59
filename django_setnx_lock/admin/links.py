"""The addresses of the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.contrib.admin.utils import quote
from django.db.models.options import Options
from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode

from ..models import Lock

# As in Django's own admin: what the list was showing, to come back to.
FILTERS = "_changelist_filters"


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """Addresses that remember the cache ``using`` ("": the configured one) and the list.

    ``site``: the name of the admin site. ``filters``: the query string of the list.
    """

    opts: Options[Lock]
    site: str
    using: str = ""
    filters: str = ""

    def to(self, page: str, name: str) -> str:
        """The ``page`` (``change``, ``release``, ``history``) of the lock ``name``."""
        query = {"using": self.using, FILTERS: self.filters}
        return self._address(page, query, quote(name))

    def to_list(self) -> str:
        """The list as it was."""
        return self._address("changelist", {"using": self.using, **QueryDict(self.filters).dict()})

    def _address(self, page: str, query: Mapping[str, str], *args: str) -> str:
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        path = reverse(view, args=args, current_app=self.site)
        given = urlencode({name: value for name, value in query.items() if value})
        return f"{path}?{given}" if given else path
