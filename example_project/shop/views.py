from __future__ import annotations

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from django_setnx_lock import redis_lock
from django_setnx_lock.views import LockedRequest

from . import payments
from .models import Order


@require_safe
def orders(request: HttpRequest) -> HttpResponse:
    """Show the front page."""
    found = Order.objects.annotate(times_charged=Count("charges"))
    # For the line to try in a terminal: an order that can still be paid, if there is one.
    example = min(found, key=lambda order: order.paid_at is not None, default=None)
    return render(request, "shop/orders.html", {"orders": found, "example": example})


@require_POST
@redis_lock("order:<pk>", timeout=10)
def pay(request: LockedRequest, pk: int) -> HttpResponse:
    """Charge the customer, once: between the look at ``paid_at`` and its change time passes."""
    order = _claim(request, pk)
    if order.paid_at:
        return _answer(request, f"{order} was paid before.", status=409)
    payments.pay(order, request.user.get_username() or "a visitor", request.lock)
    return _answer(request, f"{order} is paid.")


@require_POST
@redis_lock("order:<pk>", timeout=10)
def refund(request: LockedRequest, pk: int) -> HttpResponse:
    """Undo the payment. Under the same key, so never in the middle of one."""
    order = _claim(request, pk)
    payments.refund(order, request.lock)
    return _answer(request, f"{order} is refunded.")


def _claim(request: LockedRequest, pk: int) -> Order:
    """Return the order: whoever had its lock before writes it no more."""
    try:
        order: Order = Order.objects.claim(request.lock, pk=pk)
    except Order.DoesNotExist as error:
        raise Http404(error) from error
    return order


def _answer(request: HttpRequest, text: str, status: int = 200) -> HttpResponse:
    """Answer a program with JSON, and a person with the front page, where ``text`` is shown."""
    if request.get_preferred_type(["text/html", "application/json"]) == "application/json":
        return JsonResponse({"detail": text}, status=status)
    messages.add_message(request, messages.INFO if status == 200 else messages.WARNING, text)
    return redirect("shop:orders")
