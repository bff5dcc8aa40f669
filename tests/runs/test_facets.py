"""What a run can be found by, from the moment on at which it happened."""

from __future__ import annotations

import pytest

from flows.engine.execution import Progress
from flows.engine.history import Attempt, History
from runs.group_commit import commit_writes
from runs.models import Run, RunFacet
from runs.recorder import RunRecorder
from runs.stored_history import make_run_id
from runs.submission import submit_run
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.runs.builders import claim_run, make_run, make_version
from tests.runs.test_group_commit import begin

pytestmark = pytest.mark.django_db


def record(run: Run, *attempts: Attempt) -> None:
    recorder = RunRecorder(run, run.version.flow_spec, History.begin(run.input, run_id=make_run_id(run)))
    progress = [Progress(begun=begin(1, 1))]
    progress += [
        Progress(ended=attempt, begun=begin(1, attempt.number + 1) if attempt is not attempts[-1] else None)
        for attempt in attempts
    ]
    for step in progress:
        write = recorder.prepare(step)
        (written,) = commit_writes([write])
        recorder.confirm(write, written)  # type: ignore[arg-type]  # it is held


def read_facets(run: Run) -> set[tuple[str, str]]:
    return set(RunFacet.objects.filter(run=run).values_list("kind", "value"))


class TestFacets:
    def test_a_run_is_found_by_codes_audits_severities_and_models_of_all_its_attempts(self) -> None:
        run = claim_run(make_run(make_version(make_flow(make_step(1)))))
        first = make_attempt(
            1, 1, "failed", model="gpt-5", issues=(make_issue("high", code="hex_format", audit="Hex format"),)
        )
        second = make_attempt(
            1, 2, model="gpt-5", issues=(make_issue("high", code="hex_format", audit="Hex format"), make_issue("low"))
        )
        record(run, first, second)
        assert read_facets(run) == {
            ("code", "hex_format"),
            ("audit", "Hex format"),
            ("code", make_issue("low").code),
            *({("audit", make_issue("low").audit)} if make_issue("low").audit else ()),
            ("severity", "low"),
            ("severity", "medium"),
            ("severity", "high"),
            ("model", "gpt-5"),
        }

    def test_they_are_there_while_the_run_goes_on(self) -> None:
        run = claim_run(make_run(make_version(make_flow(make_step(1)))))
        recorder = RunRecorder(run, run.version.flow_spec, History.begin(run.input, run_id=make_run_id(run)))
        write = recorder.prepare(Progress(begun=begin(1, 1)))
        recorder.confirm(write, commit_writes([write])[0])  # type: ignore[arg-type]  # it is held
        failed = make_attempt(1, 1, "failed", issues=(make_issue("critical", code="late"),))
        commit_writes([recorder.prepare(Progress(ended=failed, begun=begin(1, 2)))])
        assert ("code", "late") in read_facets(run)

    def test_a_worker_that_takes_over_stores_none_twice(self) -> None:
        run = claim_run(make_run(make_version(make_flow(make_step(1)))))
        issue = make_issue("low", code="again")
        record(run, make_attempt(1, 1, "failed", issues=(issue,)))
        run.record_number, run.attempt_count = 2, 1
        recorder = RunRecorder(run, run.version.flow_spec, History.begin(run.input, run_id=make_run_id(run)))
        write = recorder.prepare(Progress(begun=begin(1, 2)))
        recorder.confirm(write, commit_writes([write])[0])  # type: ignore[arg-type]  # it is held
        commit_writes([recorder.prepare(Progress(ended=make_attempt(1, 2, issues=(issue,)), begun=begin(1, 3)))])
        assert RunFacet.objects.filter(run=run, kind="code", value="again").count() == 1

    def test_labels_are_there_from_the_start(self) -> None:
        version = make_version()
        run = submit_run(flow=version.flow, input={"topic": "tea"}, labels=["nightly", "pilot", "nightly"])
        assert run.labels == ["nightly", "pilot"]
        assert read_facets(run) == {("label", "nightly"), ("label", "pilot")}
