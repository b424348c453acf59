"""The locks as a Django model: a place in the admin, permissions, a log. There is no table."""

from __future__ import annotations

from typing import ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.manager import EmptyManager
from django.utils.translation import gettext_lazy as _

from .conf import get_config
from .core.holder import plain


class Lock(models.Model):
    """A lock, known by its name in Redis. Permissions: ``view_lock`` and ``release_lock``."""

    # Nothing enforces the length: no row is stored, and MySQL's checks ask for 255 at most.
    name = models.CharField(_("name"), max_length=255, primary_key=True)

    # Gives no rows, and so asks no database for a table that is not there.
    objects: ClassVar[models.Manager[Lock]] = EmptyManager(None)  # type: ignore[arg-type]  # set later

    class Meta:
        managed = False
        # dumpdata --all asks the base manager.
        base_manager_name = "objects"
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        default_permissions = ("view",)
        permissions = (("release_lock", "Can force-release lock"),)

    def __str__(self) -> str:
        try:
            return plain(self.name.removeprefix(str(get_config()["KEY_PREFIX"])))
        except ImproperlyConfigured:
            # A page that tells what is wrong with the settings names the lock, too.
            return plain(self.name)
