from __future__ import annotations

from . import pages  # noqa: F401 - registers the pages with the admin site
