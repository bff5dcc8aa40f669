"""What the parameters of a request for statistics ask for."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date, timedelta

from django.http import QueryDict

from flows.engine.errors import Problem
from flows.engine.json_values import shorten
from flows.models import Flow, FlowVersion
from runs.api.problems import InvalidQuery
from runs.statistics.sums import last_days

USUAL_DAYS = 30
MOST_DAYS = 1_000
"""Days that one request may ask for."""
_YEARS = range(2000, 3000)
_LONGEST = 200
"""Characters of names: those that columns have room for."""


class StatisticsQuery:
    """Reads parameters one by one, and gathers what is wrong with them for ``finish``."""

    def __init__(self, query: QueryDict, today: date) -> None:
        """``today`` is the day of now in UTC: where a span ends unless it says otherwise."""
        self._query = query
        self._today = today
        self._problems: list[Problem] = []

    def complain(self, name: str, sentence: str) -> None:
        """Note what is wrong with the parameter ``name``."""
        self._problems.append(Problem(name, sentence))

    def finish(self) -> None:
        """Raise ``InvalidQuery`` if anything was wrong."""
        if self._problems:
            raise InvalidQuery(self._problems)

    def read_text(self, name: str) -> str | None:
        """The value of a parameter; None if it is not there or can't be right."""
        text: str | None = self._query.get(name)
        if text is None:
            return None
        if not text:
            self.complain(name, f"“{name}” is empty; leave it out or give it a value.")
        elif len(text) > _LONGEST or "\0" in text:
            self.complain(name, f"“{name}” has at most {_LONGEST} characters, and no NUL among them.")
        else:
            return text
        return None

    def read_flag(self, name: str) -> bool:
        """``true`` or ``false``; False where it is not there."""
        return self.read_choice(name, ("true", "false"), "false") == "true"

    def read_choice(self, name: str, choices: Collection[str], usual: str) -> str:
        """One of ``choices``; ``usual`` where it is not there."""
        text = self.read_text(name)
        if text is None or text in choices:
            return usual if text is None else text
        self.complain(name, f"“{name}” can be {_join(choices)}, not “{shorten(text, 41)}”.")
        return usual

    def read_choices(self, name: str, choices: Collection[str], usual: str) -> tuple[str, ...]:
        """Some of ``choices``, with commas between them; ``usual`` where there are none."""
        text = self.read_text(name)
        found = (usual,) if text is None else tuple(text.split(","))
        unknown = next((one for one in found if one not in choices), None)
        if unknown is not None:
            sentence = (
                f"“{name}” can be {_join(choices)}, or several of them with commas, not “{shorten(unknown, 41)}”."
            )
            self.complain(name, sentence)
        return found

    def read_span(self) -> tuple[date, date]:
        """The first and the last day of ``from`` and ``to``; by default the last 30 days, or those up to ``to``."""
        first, last = self._read_day("from"), self._read_day("to")
        last = last or self._today
        first = first or last_days(USUAL_DAYS, last).first
        if first > last:
            self.complain("from", f"“from” ({first}) is later than “to” ({last}).")
        elif (last - first).days >= MOST_DAYS:
            self.complain("from", f"These are more than {MOST_DAYS:,} days; ask for fewer at a time.")
        return first, last

    def read_flow(self) -> Flow | None:
        """The flow whose name ``flow`` is; None where it is not there."""
        name = self.read_text("flow")
        if name is None:
            return None
        flow = Flow.objects.filter(name=name).only("pk", "name").first()
        if flow is None:
            self.complain("flow", f"There is no flow “{shorten(name, 41)}”.")
        return flow

    def choose_version(self, flow: Flow | None, versions: Sequence[FlowVersion] | None = None) -> FlowVersion | None:
        """The version of ``flow`` whose number ``version`` is; None where it is not there.

        ``versions`` are all of that flow, where they are known.
        """
        text = self.read_text("version")
        if text is None:
            return None
        if flow is None:
            self.complain("version", "Versions are numbered within a flow: give “flow”, too.")
            return None
        number = int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text, re.ASCII) else 0
        if versions is None:
            versions = list(FlowVersion.objects.filter(flow=flow, number=number).only("flow", "number"))
        found = next((version for version in versions if version.number == number), None)
        if found is None:
            self.complain("version", f"There is no version “{shorten(text, 41)}” of the flow “{flow.name}”.")
        return found

    def _read_day(self, name: str) -> date | None:
        text = self.read_text(name)
        if text is None:
            return None
        try:
            day = date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) else None
        except ValueError:
            day = None
        if day is None or day.year not in _YEARS:
            self.complain(name, f"“{name}” is a day such as {self._today}, not “{shorten(text, 41)}”.")
            return None
        return day


def begin_week(day: date) -> date:
    """The Monday of the week of ``day``."""
    return day - timedelta(days=day.weekday())


def _join(words: Collection[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"
