"""What a run can be found by, from the moment on at which it happened."""

from __future__ import annotations

import pytest

from runs.models import Run, RunFacet
from runs.submission import submit_run
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.runs.builders import claim_run, make_run, make_version
from tests.runs.test_group_commit import begin, make_recorder, store

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def read_facets(run: Run) -> set[tuple[str, str]]:
    return set(RunFacet.objects.filter(run=run).values_list("kind", "value"))


class TestFacets:
    def test_a_run_in_flight_is_found_by_codes_audits_severities_and_models_of_all_its_attempts(self) -> None:
        recorder = make_recorder(claim_run(run := make_run(make_version(make_flow(make_step(1))))))
        store(recorder, begun=begin())
        severe = make_issue("high", code="hex_format", audit="Hex format")
        store(recorder, ended=make_attempt(1, 1, "failed", model="gpt-5", issues=(severe,)), begun=begin(1, 2))
        facets = {
            ("code", "hex_format"),
            ("audit", "Hex format"),
            *(("severity", severity) for severity in ("low", "medium", "high")),
            ("model", "gpt-5"),
        }
        assert read_facets(run) == facets
        mild = make_issue("low", code="late")
        store(recorder, ended=make_attempt(1, 2, "failed", model="gpt-5", issues=(severe, mild)), begun=begin(1, 3))
        assert read_facets(run) - facets == {("code", "late")}

    def test_a_worker_that_takes_over_stores_none_twice(self) -> None:
        run = make_run(make_version(make_flow(make_step(1))))
        for number, worker in enumerate(["worker-1", "worker-2"], start=1):
            held = claim_run(run, worker)
            recorder = make_recorder(held)
            store(recorder, begun=begin(1, number))
            store(recorder, ended=make_attempt(1, number, "failed", issues=(make_issue("low", code="again"),)))
            held.hand_back()
        assert RunFacet.objects.filter(run=run, kind="code", value="again").count() == 1

    def test_labels_are_there_from_the_start(self) -> None:
        version = make_version()
        run = submit_run(flow=version.flow, input={"topic": "tea"}, labels=["nightly", "pilot", "nightly"])
        assert run.labels == ["nightly", "pilot"]
        assert read_facets(run) == {("label", "nightly"), ("label", "pilot")}
