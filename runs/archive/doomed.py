"""Which runs of a file a policy would take away again as soon as they are back."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from django.utils.dateparse import parse_datetime

from runs.archive.reading import Record
from runs.archive.versions import Versions
from runs.retention.policy import Part, Policy, read_policy

_MOST_NAMED = 5


class Doomed:
    """Counts runs that are due already, by flow and by what would go of them; is shown the records of a file."""

    def __init__(self, *, now: datetime) -> None:
        self._now = now
        self._versions = Versions(makes=False)
        self._policies: dict[str, Policy] = {}
        """By the name that the flow has here. For flows that are not there yet the settings hold."""
        self._counts: dict[str, Counter[Part]] = {}

    def look(self, record: Record) -> None:
        """Count the record if it is of such a run. What can't be read is left to whoever restores it."""
        if record.kind == "flow_version":
            self._versions.take(record.value)
            return
        try:
            flow = self._versions.get(record.value.get("flow"), record.value.get("version")).flow
            moment = parse_datetime(str(record.value.get("ended_at")))
        except ValueError:
            return
        if moment is None or moment.tzinfo is None:
            return
        policy = self._policies.get(flow.name) or self._policies.setdefault(flow.name, read_policy(flow))
        for part in (Part.RUNS, Part.OUTPUTS):
            limit = policy.find_limit(part, self._now)
            has_part = part is Part.RUNS or record.value.get("outputs_removed_at") is None
            if limit is not None and moment < limit and has_part:
                self._counts.setdefault(flow.name, Counter())[part] += 1
                return

    def explain(self) -> str:
        """What would go, flow by flow, in one sentence; empty if all would stay."""
        told = [
            f"of “{name}” ({self._policies[name]}) {self._count(counts)}"
            for name, counts in sorted(self._counts.items())[:_MOST_NAMED]
        ]
        if not told:
            return ""
        more = len(self._counts) - len(told)
        rest = f"; and runs of {more:,} more flows" if more else ""
        return f"Within the hour policies would take away again {'; '.join(told)}{rest}."

    def _count(self, counts: Counter[Part]) -> str:
        words = {Part.RUNS: "{:,} runs", Part.OUTPUTS: "the outputs of {:,} runs"}
        return " and ".join(words[part].format(counts[part]) for part in words if counts[part])
