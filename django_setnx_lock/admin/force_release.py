"""The forced release of one lock: a confirmation, then the holder that was seen loses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.contrib import messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import LockUnavailable
from ..core.inspection import Outcome
from ..locks import inspector
from ..models import Lock
from ..words import problem
from .links import Links
from .words import Row

if TYPE_CHECKING:
    from .pages import LockAdmin


class ReleaseForm(forms.Form):
    """Which holder the operator saw, and why the lock is taken from it."""

    fingerprint = forms.CharField(widget=forms.HiddenInput)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        help_text=gettext_lazy("Kept in the log, and told to the holder when it finds out."),
        required=False,
        max_length=200,
        widget=AdminTextInputWidget,
    )


def release_page(pages: LockAdmin, request: HttpRequest, name: str, links: Links) -> HttpResponse:
    """Answer a request to release the lock ``name``.

    The fingerprint comes from the page the operator was looking at, so a holder that was
    never seen is never released. Raises LockUnavailable and ImproperlyConfigured.
    """
    look = inspector(links.using or None)
    info = look.get(name)
    seen = request.POST.get("fingerprint") or info.fingerprint
    for share in info.shares:
        if share.fingerprint == seen:
            info = info.of_one(share)
    row = pages.row(info, links)
    form = ReleaseForm(
        request.POST if request.POST.get("post") else None, initial={"fingerprint": seen}
    )
    if form.is_valid():
        try:
            outcome = look.force_release(
                name, seen, by=request.user.get_username(), reason=form.cleaned_data["reason"]
            )
        except LockUnavailable as error:
            unsure = _("It is not known whether the lock was released. Look at it again.")
            return pages.release_response(request, links, name, **problem(error, unsure))
    elif not row.is_held:
        outcome = Outcome.FREE
    elif info.fingerprint != seen:
        outcome = Outcome.CHANGED_HANDS
    else:
        return pages.release_response(request, links, name, row=row, form=form)
    if outcome is Outcome.RELEASED:
        # Only now: a log that tells of a release that did not happen misleads.
        pages.log_change(request, Lock(name=name), _log_text(row, form.cleaned_data["reason"]))
    return _tell(pages, request, outcome, row, links)


def _log_text(row: Row, reason: str) -> str:
    text = _("Force-released from %(holder)s, held for %(held_for)s.") % {
        "holder": row.holder,
        "held_for": row.held_for,
    }
    return f"{text} {_('Reason: %s') % reason}" if reason else text


def _tell(
    pages: LockAdmin, request: HttpRequest, outcome: Outcome, row: Row, links: Links
) -> HttpResponse:
    """Say what became of it, on the page where to go on: the new holder's, or the list."""
    level, text = {
        Outcome.RELEASED: (
            messages.SUCCESS,
            _("The lock “%(key)s” was released from %(holder)s, which this did not stop."),
        ),
        Outcome.CHANGED_HANDS: (
            messages.WARNING,
            _(
                "The lock “%(key)s” changed hands after you looked: nothing was released. "
                "This is its holder now."
            ),
        ),
        Outcome.FREE: (
            messages.WARNING,
            _("Nobody holds the lock “%(key)s” any more: nothing was released."),
        ),
    }[outcome]
    pages.message_user(request, text % {"key": row.info.key, "holder": row.holder}, level)
    changed = outcome is Outcome.CHANGED_HANDS
    return HttpResponseRedirect(row.url if changed else links.to_list())
