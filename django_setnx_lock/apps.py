from __future__ import annotations

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class SetnxLockConfig(AppConfig):
    name = "django_setnx_lock"
    verbose_name = _("Distributed locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import async_safety, bridges, checks, scopes, url_checks  # noqa: F401 - some to have effect as such

        bridges.install()
        scopes.install()

        if apps.is_installed("django.contrib.admin"):
            from .admin import checks as admin_checks  # noqa: F401 - the same
