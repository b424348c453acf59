from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.utils import timezone
from django.utils.translation import ngettext

from django_setnx_lock.admin import LockedAdminMixin

from .models import Order

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    _OrderAdmin = admin.ModelAdmin[Order]
else:
    _OrderAdmin = admin.ModelAdmin


@admin.register(Order)
class OrderAdmin(LockedAdminMixin, _OrderAdmin):
    lock_key = "order:<pk>"
    list_display = ("number", "customer", "amount", "paid_at", "paid_by", "edited_by")
    list_filter = (("paid_at", admin.EmptyFieldListFilter),)
    search_fields = ("number", "customer")
    readonly_fields = ("paid_at", "paid_by")
    actions = ("mark_paid",)

    @admin.action(description="Mark selected orders as paid by invoice", permissions=["change"])
    def mark_paid(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        """Not while one of them is being paid by card: that order is skipped."""
        who = f"invoice, {request.user.get_username()}"
        count = queryset.filter(paid_at=None).update(paid_at=timezone.now(), paid_by=who)
        text = ngettext("%d order marked as paid.", "%d orders marked as paid.", count)
        self.message_user(request, text % count)
