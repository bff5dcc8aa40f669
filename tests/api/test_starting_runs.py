"""Starting runs from a script, one or many, running them again, changing and cancelling them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django_q.models import OrmQ

from flows.models import FlowVersion
from runs.models import AuditEntry, FacetKind, Priority, Run, RunFacet, RunStatus
from tests.api.asking import Script, list_wrong, read, read_json, read_type
from tests.engine.builders import NOON, closed, make_flow
from tests.runs.builders import claim_run, make_run, make_version

pytestmark = pytest.mark.django_db

TOPIC = closed(topic={"type": "string"})
INPUT = {"topic": "tea"}
ORDER = {"flow": "example", "input": INPUT}
DEEP = b'{"flow": "example", "input": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}"


@pytest.fixture(autouse=True)
def version(db: None) -> FlowVersion:
    return make_version(make_flow(input_schema=TOPIC))


def send(script: Script, path: str, body: Any = None) -> Any:
    return read_json(script.post(path, body), 202)


class TestOne:
    def test_it_is_queued_with_everything_that_it_was_given_and_null_is_as_if_it_were_left_out(
        self, operator: Script
    ) -> None:
        make_version(make_flow(input_schema=closed(other={"type": "string"})))
        given = {
            "version": 1,
            "labels": ["customer 42", "nightly"],
            "metadata": {"order": 4711, "by": {"name": "Zoë"}},
            "priority": "high",
            "token_budget": 20_000,
            "cost_budget": "0.50000000",
            "time_limit": 90,
            "webhook_url": "https://example.com/hooks?key=1",
        }
        answer = operator.post("runs", {**ORDER, **given, "cost_budget": 0.5})
        document = read_json(answer, 202)
        assert (answer["Location"], answer["Retry-After"]) == (document["url"], "1")
        assert (document["status"], document["started_by"], OrmQ.objects.count()) == ("queued", "operator", 1)
        assert {name: document[name] for name in given} == given
        assert document == read(operator, f"runs/{document['id']}?attempts=none")
        nulls = dict.fromkeys([*given, "input"])
        document = send(operator, "runs", {**ORDER, **nulls, "input": {"other": "tea"}})
        assert [document[name] for name in given] == [2, [], {}, "normal", None, None, None, None]

    def test_what_is_no_json_is_refused_as_such(self, operator: Script) -> None:
        for body in (b"{", b"\xff", b'{"flow": "a", "flow": "b"}', b'{"input": NaN}', DEEP):
            assert read_type(operator.post("runs", body)) == (400, "bad-request"), body

    @pytest.mark.parametrize("values", [{"is_archived": True}, {"live_version": None}])
    def test_a_flow_that_can_not_be_run_is_a_conflict(
        self, operator: Script, version: FlowVersion, values: dict[str, Any]
    ) -> None:
        type(version.flow).objects.update(**values)
        many = {"flow": "example", "runs": [{"input": INPUT}]}
        for path, body in (("runs", ORDER), ("runs/bulk", many)):
            assert read_type(operator.post(path, body)) == (409, "not-runnable")


class TestMany:
    def test_they_are_queued_in_the_order_of_the_list_and_the_answer_leads_to_exactly_these(
        self, operator: Script
    ) -> None:
        send(operator, "runs", ORDER)
        runs = [{"input": {"topic": f"tea {n}"}, "labels": [f"n{n}"], "metadata": {"row": n}} for n in range(210)]
        body = {"flow": "example", "runs": runs, "labels": ["import"], "priority": "low"}
        answer = operator.post("runs/bulk", body)
        document = read_json(answer, 202)
        assert (document["flow"], document["version"], document["count"]) == ("example", 1, 210)
        assert (answer["Location"], answer["Retry-After"]) == (document["url"], "1")
        ids = [one["id"] for one in document["runs"]]
        assert document["runs"][0]["url"] == f"http://testserver/api/v1/runs/{ids[0]}"
        stored = Run.objects.in_bulk(ids)
        for number, run in enumerate(stored[key] for key in ids):
            assert (run.input, run.metadata) == ({"topic": f"tea {number}"}, {"row": number})
            assert (run.labels, run.priority) == (["import", f"n{number}"], Priority.LOW)
        assert RunFacet.objects.filter(kind="label", value="import").count() == 210
        assert OrmQ.objects.count() == 1
        send(operator, "runs", ORDER)
        first = read(operator, f"{document['url']}&limit=200")
        second = read(operator, first["next"])
        found = [item["id"] for page in (first, second) for item in page["items"]]
        assert (found[::-1], second["next"]) == (ids, None)
        assert read(operator, second["previous"])["items"] == first["items"]
        # What is left to wait for.
        Run.objects.exclude(pk__in=found[:3]).update(status="failed", ended_at=NOON)
        left = read(operator, f"{document['url']}&status=queued,running")["items"]
        assert [item["id"] for item in left] == found[:3]
        other = make_run(make_version(make_flow())).pk
        for start, end in ((ids[0], other), (ids[-1], ids[0]), (ids[0], 10**30)):
            assert read_type(operator.get(f"runs/bulk?first={start}&last={end}")) == (404, "not-found")

    @pytest.mark.sql
    @pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets one request write at a time")
    def test_runs_that_others_started_in_between_are_not_among_them(
        self, version: FlowVersion, operator: Script
    ) -> None:
        first, second, _, last = (make_run(version) for _ in range(4))
        Run.objects.filter(pk__in=[first.pk, second.pk, last.pk]).update(created_at=NOON)
        found = read(operator, f"runs/bulk?first={first.pk}&last={last.pk}")["items"]
        assert [item["id"] for item in found] == [last.pk, second.pk, first.pk]


class TestRunningAgain:
    @pytest.fixture
    def source(self, version: FlowVersion) -> Run:
        return make_run(
            version,
            status=RunStatus.FAILED,
            ended_at=NOON,
            labels=["bulk-2", "nightly"],
            metadata={"order": 4711},
            webhook_url="https://example.com/hooks",
            priority=Priority.LOW,
            token_budget=500,
        )

    def test_the_new_run_is_given_what_the_old_one_was_but_for_what_the_body_says(
        self, source: Run, operator: Script
    ) -> None:
        document = send(operator, f"runs/{source.pk}/run-again")
        run = Run.objects.exclude(pk=source.pk).get()
        for name in ("input", "version", "metadata", "webhook_url", "priority", "token_budget"):
            assert getattr(run, name) == getattr(source, name), name
        assert (document["again_of"], document["labels"], document["status"]) == (source.pk, ["nightly"], "queued")
        nulls: dict[str, Any] = dict.fromkeys(("metadata", "webhook_url", "priority", "token_budget"))
        body = {**nulls, "input": {"topic": "coffee"}, "labels": ["second try"], "time_limit": 90}
        document = send(operator, f"runs/{source.pk}/run-again", body)
        assert {name: document[name] for name in body} == {**body, "metadata": {}, "priority": "normal"}
        for title in ("Second", "Third"):
            make_version(make_flow(input_schema=TOPIC, title=title))
        for version, number in (("same", 1), ("live", 3), (2, 2)):
            assert send(operator, f"runs/{source.pk}/run-again", {"version": version})["version"] == number

    def test_what_it_can_not_be_given_again_is_replaced(self, source: Run, operator: Script) -> None:
        again = f"runs/{source.pk}/run-again"
        # An address that nothing is sent to any more, and an input that retention removed.
        Run.objects.update(webhook_url="https://hooks.example.com:25/T0")
        assert list_wrong(operator.post(again), 422) == ["/webhook_url"]
        send(operator, again, {"webhook_url": None})
        Run.objects.update(outputs_removed_at=NOON, webhook_url="")
        assert read_type(operator.post(again)) == (409, "outputs-removed")
        send(operator, again, {"input": INPUT})
        # A version that this release can't read.
        QuerySet.update(FlowVersion.objects.all(), spec={"shape": "round"})
        Run.objects.update(outputs_removed_at=None)
        source.flow.make_live(make_version(make_flow(input_schema=TOPIC, title="Second")))
        assert send(operator, again, {"version": "live"})["version"] == 2


class TestChanging:
    def change(self, script: Script, number: int, **body: Any) -> Any:
        return read_json(script.ask("PATCH", f"runs/{number}", body))

    def test_labels_and_metadata_are_replaced(self, operator: Script) -> None:
        run = send(operator, "runs", {**ORDER, "labels": ["a", "b"], "metadata": {"x": 1}})
        before = Run.objects.get().revision
        changed = self.change(operator, run["id"], labels=["b", "c"])
        assert changed == {**run, "labels": ["b", "c"]} == read(operator, f"runs/{run['id']}?attempts=none")
        assert [len(read(operator, f"runs?label={label}")["items"]) for label in "abc"] == [0, 1, 1]
        changed = self.change(operator, run["id"], labels=None, metadata={"y": 2})
        assert (changed["labels"], changed["metadata"]) == ([], {"y": 2})
        # What changes nothing is not recorded.
        self.change(operator, run["id"], metadata={"y": 2})
        assert Run.objects.get().revision == before + 2
        details = AuditEntry.objects.filter(action="run_changed").order_by("pk").values_list("details", flat=True)
        assert list(details) == [{"changed": ["labels"]}, {"changed": ["labels", "metadata"]}]

    def test_the_label_of_a_bulk_action_stays(self, operator: Script) -> None:
        run = make_run(status=RunStatus.FAILED, ended_at=NOON, labels=["bulk-2", "old"])
        RunFacet.objects.create(run=run, kind=FacetKind.LABEL, value="bulk-2", created_at=run.created_at)
        for labels in (["new"], ["bulk-2", "new"]):
            assert self.change(operator, run.pk, labels=labels)["labels"] == ["bulk-2", "new"]
        assert [one["id"] for one in read(operator, "runs?label=bulk-2")["items"]] == [run.pk]


class TestCancelling:
    def test_a_queued_run_is_cancelled_at_once_and_once(self, operator: Script) -> None:
        run = make_run()
        first, second = (operator.post(f"runs/{run.pk}/cancel") for _ in range(2))
        assert (first.status_code, second.status_code, first.content) == (202, 202, second.content)
        assert "Retry-After" not in first
        document = json.loads(first.content)
        assert (document["status"], document["end_reason"]) == ("cancelled", "cancelled")
        assert document == read(operator, f"runs/{run.pk}?attempts=none")
        assert AuditEntry.objects.filter(action="run_cancelled").count() == 1

    def test_a_running_run_is_flagged_however_often_that_is_asked(self, operator: Script) -> None:
        run = claim_run(make_run(is_simulated=True))
        for _ in range(2):
            answer = operator.post(f"runs/{run.pk}/cancel", {})
            assert (answer.status_code, answer["Retry-After"]) == (202, "1")
            document = json.loads(answer.content)
            assert (document["status"], document["cancel_requested"]) == ("running", True)


def test_there_is_no_such_run(operator: Script) -> None:
    for number in (4711, 10**30):
        for method, part in (("POST", "/run-again"), ("POST", "/cancel"), ("PATCH", "")):
            assert read_type(operator.ask(method, f"runs/{number}{part}")) == (404, "not-found")
