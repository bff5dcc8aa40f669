"""The figures of one flow as a document: the same as on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.models import Flow
from runs.api.statistics_documents import StatisticsWriter, write_issue
from runs.api.statistics_query import begin_week
from runs.statistics.figures import (
    DayRuns,
    Scope,
    StepGroup,
    fetch_issues,
    fetch_runs,
    fetch_steps,
    fetch_steps_by_day,
    sum_groups,
    sum_models,
    sum_versions,
)
from runs.statistics.sums import WEEK, Period, RunSums, StepSums, sum_by_slot

MOST_VERSIONS = 100
MOST_ISSUES = 50


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """Reads what an answer about a flow has, with ``model`` only of attempts; runs by model are in a list."""

    flow: Flow
    scope: Scope
    model: str | None
    numbers: Mapping[int, int]
    """The number of each version by its key."""

    def write(self, group_by: str) -> dict[str, Any]:
        """All figures. Takes three queries, one more with ``day`` or ``week``, one less with a model."""
        is_of_model = self.model is not None
        groups = fetch_steps(self.scope)
        shown = [group for group in groups if group.model == self.model] if is_of_model else groups
        runs_by_day = fetch_runs(self.scope)
        days = [] if is_of_model else runs_by_day
        writer = StatisticsWriter(is_simulated=self.scope.is_simulated)
        by_version = sum_versions(days)
        runs = None if is_of_model else RunSums.join(by_version.values())
        by_step = sum_groups(shown, lambda group: (group.step, group.name))
        return {
            **writer.write_figures(runs, StepSums.join(group.sums for group in shown), is_of_model=is_of_model),
            "periods": None if group_by == "none" else self._list_periods(writer, days, group_by),
            "versions": self._list_versions(writer, by_version, shown),
            "runs_by_model": [writer.write_model_runs(*key, sums) for key, sums in sum_models(runs_by_day).items()],
            "models": _list_models(writer, groups),
            "by_step": [
                {"step": step, "name": name, **writer.write_figures(None, sums, is_of_model=is_of_model)}
                for (step, name), sums in sorted(by_step.items())
            ],
            "issues": None
            if is_of_model
            else [write_issue(sums) for sums in fetch_issues(self.scope, limit=MOST_ISSUES)],
        }

    def _list_periods(self, writer: StatisticsWriter, days: Sequence[DayRuns], group_by: str) -> list[dict[str, Any]]:
        first, last = self.scope.first, self.scope.last
        period = Period(begin_week(first), last, WEEK) if group_by == "week" else Period(first, last)
        steps = sum_by_slot(period, fetch_steps_by_day(self.scope, self.model))
        runs = sum_by_slot(period, ((day.day, day.sums) for day in days))
        is_of_model = self.model is not None
        # A long span has many slots in which nothing ran.
        nothing = writer.write_figures(None if is_of_model else RunSums(), StepSums(), is_of_model=is_of_model)
        return [
            {
                "from": max(slot.first, first),
                "to": min(slot.last, last),
                **(
                    writer.write_figures(
                        None if is_of_model else own_runs or RunSums(), own_steps or StepSums(), is_of_model=is_of_model
                    )
                    if own_runs or own_steps
                    else nothing
                ),
            }
            for slot, own_runs, own_steps in zip(period.slots, runs, steps, strict=True)
        ]

    def _list_versions(
        self, writer: StatisticsWriter, runs: Mapping[int, RunSums], groups: Sequence[StepGroup]
    ) -> list[dict[str, Any]]:
        """What ran of each version, the newest first."""
        is_of_model = self.model is not None
        steps = sum_groups(groups, lambda group: group.version_id)
        keys = sorted(steps if is_of_model else runs, key=lambda key: -self.numbers[key])
        return [
            {
                "version": self.numbers[key],
                "is_live": key == self.flow.live_version_id,
                **writer.write_figures(
                    None if is_of_model else runs[key], steps.get(key, StepSums()), is_of_model=is_of_model
                ),
            }
            for key in keys[:MOST_VERSIONS]
        ]


def _list_models(writer: StatisticsWriter, groups: Sequence[StepGroup]) -> list[dict[str, Any]]:
    """What each model did, the one with the most attempts first and what none answered last."""
    found = sum_groups(groups, lambda group: group.model)
    return [
        {"model": name or None, **writer.write_figures(None, sums, is_of_model=True)}
        for name, sums in sorted(found.items(), key=lambda one: (not one[0], -one[1].attempts, one[0]))
    ]
