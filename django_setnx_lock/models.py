"""The locks as a Django model: a place in the admin, permissions, a log. There is no table."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .conf import get_config


class _NoRows(models.Manager["Lock"]):
    """Gives no rows, and so asks no database for a table that is not there."""

    def get_queryset(self) -> models.QuerySet[Lock]:
        rows: models.QuerySet[Lock] = super().get_queryset().none()
        return rows


class Lock(models.Model):
    """A lock, known by its name in Redis. Permissions: ``view_lock`` and ``release_lock``."""

    # Nothing enforces the length: no row is stored, and MySQL's checks ask for 255 at most.
    name = models.CharField(_("name"), max_length=255, primary_key=True)

    objects = _NoRows()

    class Meta:
        managed = False
        # dumpdata --all asks the base manager.
        base_manager_name = "objects"
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        default_permissions = ("view",)
        permissions = (("release_lock", "Can force-release lock"),)

    def __str__(self) -> str:
        return self.name.removeprefix(get_config()["KEY_PREFIX"])
