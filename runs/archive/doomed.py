"""Which runs of a file a policy would take away again as soon as they are back."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from django.utils.dateparse import parse_datetime

from flows.models import Flow
from runs.archive.reading import Record
from runs.retention.policy import Part, Policy, read_policy

_MOST_NAMED = 5


class Doomed:
    """Counts runs that are due already, by flow and by what would go of them; is shown the records of a file."""

    def __init__(self, *, now: datetime) -> None:
        self._now = now
        self._policies = {flow.name: read_policy(flow) for flow in Flow.objects.all()}
        self._elsewhere = read_policy(Flow())
        """What holds for flows that are not there yet."""
        self._counts: dict[str, Counter[Part]] = {}

    def look(self, record: Record) -> None:
        """Count the record if it is of such a run. What can't be read is left to whoever restores it."""
        name, ended_at = record.value.get("flow"), record.value.get("ended_at")
        if record.kind != "run" or not isinstance(name, str) or not isinstance(ended_at, str):
            return
        try:
            moment = parse_datetime(ended_at)
        except ValueError:
            return
        if moment is None or moment.tzinfo is None:
            return
        for part in (Part.RUNS, Part.OUTPUTS):
            limit = self._find_policy(name).find_limit(part, self._now)
            has_part = part is Part.RUNS or record.value.get("outputs_removed_at") is None
            if limit is not None and moment < limit and has_part:
                self._counts.setdefault(name, Counter())[part] += 1
                return

    def explain(self) -> str:
        """What would go, flow by flow, in one sentence; empty if all would stay."""
        told = [
            f"of “{name}” ({self._find_policy(name)}) {self._count(counts)}"
            for name, counts in sorted(self._counts.items())[:_MOST_NAMED]
        ]
        if not told:
            return ""
        more = len(self._counts) - len(told)
        rest = f"; and runs of {more:,} more flows" if more else ""
        return f"Within the hour policies would take away again {'; '.join(told)}{rest}."

    def _find_policy(self, name: str) -> Policy:
        return self._policies.get(name, self._elsewhere)

    def _count(self, counts: Counter[Part]) -> str:
        words = {Part.RUNS: "{:,} runs", Part.OUTPUTS: "the outputs of {:,} runs"}
        return " and ".join(words[part].format(counts[part]) for part in words if counts[part])
