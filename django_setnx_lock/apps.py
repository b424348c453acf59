from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SetnxLockConfig(AppConfig):
    name = "django_setnx_lock"
    verbose_name = _("Distributed locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import async_support, checks, leftovers  # noqa: F401 - the checks register themselves

        async_support.install()
        leftovers.install()
