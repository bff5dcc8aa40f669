"""Runs as JSON documents, many at a time: the number of queries doesn't grow with runs or attempts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from flows.engine.history import NO_USAGE, sum_usage
from runs import models
from runs.documents.attempt_document import build_usage_document
from runs.documents.run_summary import build_summary, find_input, load_run_rows
from runs.documents.step_document import WHOLE, Shown, build_steps, load_attempts, load_step_names
from runs.stored_history import read_usage


class RunDocuments:
    """Reads runs as documents: with ``has_attempts`` as the page of a run gives them, else what is known of the run.

    ``shown`` says which part of their history they hold, ``has_address`` is that of ``build_summary``.
    """

    def __init__(self, *, has_attempts: bool = True, shown: Shown = WHOLE, has_address: bool = False) -> None:
        self._has_attempts = has_attempts
        self._shown = shown
        self._has_address = has_address
        self._step_names: dict[int, tuple[str, ...]] = {}

    def read(self, run_ids: Collection[int]) -> Iterator[dict[str, Any]]:
        """The documents of these runs, the newest first. A run that is gone is passed over."""
        rows = load_run_rows(run_ids)
        if not self._has_attempts or not rows:
            for row in rows:
                yield build_summary(row, has_usage=self._shown.has_usage, has_address=self._has_address)
            return
        missing = {row.version_id for row in rows} - self._step_names.keys()
        if missing:
            self._step_names.update(load_step_names(missing))
        attempts = load_attempts(run_ids)
        for row in rows:
            # Let go of it as soon as it is written: outputs may be large.
            yield self._build_whole(row, attempts.pop(row.pk, []))

    def _build_whole(self, row: Any, attempts: Sequence[models.Attempt]) -> dict[str, Any]:
        document = build_summary(row, has_usage=False, has_address=self._has_address)
        document["steps"] = build_steps(find_input(row), self._step_names[row.version_id], attempts, self._shown)
        if self._shown.has_usage:
            document["usage"] = build_usage_document(sum_usage(map(_read_own_usage, attempts)))
        return document


def _read_own_usage(row: models.Attempt) -> Any:
    usage = getattr(row, "usage", None)
    return read_usage(usage) if usage else NO_USAGE
