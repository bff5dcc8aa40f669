"""The audit log."""

from __future__ import annotations

from operator import attrgetter

from django.urls import URLPattern, path
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import READ_TRAIL
from runs.api.base import ApiView, build_page, operation
from runs.api.openapi import PAGE_PARAMETERS
from runs.api.paging import NUMBERS, cut_page, read_paging
from runs.api.schemas.audit_log import TrailPage, TrailQuery
from runs.audit_log.entries import fetch_entries


class AuditLog(ApiView):
    """``/trail``"""

    @operation(
        "listTrail",
        "Read the audit log",
        tag="Trail",
        requires=READ_TRAIL,
        query=TrailQuery,
        parameters=PAGE_PARAMETERS,
        answers={200: TrailPage},
    )
    def get(self, request: Request, query: TrailQuery) -> Response:
        """Sign-ins, changes of flows, users, tokens and limits, runs started or cancelled, exports: the newest first.

        It takes the permission to see the audit log, which administrators have. To read on from where a script
        stopped, send `after` with the number of the last entry that it has.
        """
        paging = read_paging(request.query_params, NUMBERS)
        entries = fetch_entries(query.to_filters(), limit=paging.limit + 1, before=paging.before, after=paging.after)
        if paging.after is not None:
            entries.reverse()
        page = cut_page(entries, paging, key_of=attrgetter("pk"), is_descending=True)
        return build_page(TrailPage, request, page.rows, next=page.next, previous=page.previous)


urls: list[URLPattern] = [path("trail", AuditLog.as_view(), name="trail")]
