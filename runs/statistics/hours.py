"""For how long hours are kept: enough for today and the days that it stands beside, in any time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from django.db.models import QuerySet

from runs.models import HourlyRuns

KEPT = timedelta(days=15)


def find_first_day(now: datetime) -> date:
    """The first day (UTC) whose hours are kept."""
    return (now - KEPT).astimezone(UTC).date()


def find_hours_before(limit: datetime) -> QuerySet[HourlyRuns]:
    """Hours of days that were over at ``limit``."""
    return HourlyRuns.objects.filter(day__lt=limit.astimezone(UTC).date())
