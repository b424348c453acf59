from __future__ import annotations

from django.apps import AppConfig
from django.utils.asyncio import async_unsafe
from django.utils.translation import gettext_lazy as _


class SetnxLockConfig(AppConfig):
    name = "django_setnx_lock"
    verbose_name = _("Distributed locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, history  # noqa: F401 - the checks register themselves
        from .core.connections import backend

        backend.refuse = _refuse
        history.connect()


def _refuse(message: str) -> None:
    """Raise SynchronousOnlyOperation in an event loop, unless DJANGO_ALLOW_ASYNC_UNSAFE is set."""
    async_unsafe(message)(lambda: None)()
