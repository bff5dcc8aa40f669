"""Starting runs from a script: one, many at once, and one like another."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django_q.models import OrmQ

from flows.models import FlowVersion
from runs.models import ApiToken, Priority, Run, RunFacet, RunStatus, TokenScope
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import NOON, closed, make_flow, make_step
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db

TOPIC = closed(topic={"type": "string"})
DEEP = b'{"flow": "example", "input": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}"


@pytest.fixture
def version() -> FlowVersion:
    return make_version(make_flow(input_schema=TOPIC))


def read_errors(answer: Any) -> dict[str, str]:
    """What a 422 says, by JSON pointer."""
    problem = read_problem(answer)
    assert (problem["status"], problem["type"]) == (422, "urn:toolflow:problem:invalid-body"), problem
    return {error["pointer"]: error["detail"] for error in problem["errors"]}


class TestOneRun:
    def test_it_is_queued_and_the_answer_says_where_to_read_it(self, version: FlowVersion, operator: Script) -> None:
        answer = operator.post("runs", {"flow": "example", "input": {"topic": "tea"}})
        assert answer.status_code == 202, answer.content
        run = Run.objects.get()
        assert answer["Location"] == f"http://testserver/api/v1/runs/{run.pk}"
        assert answer["Retry-After"] == "1"
        document = json.loads(answer.content)
        assert (document["id"], document["status"], document["started_by"]) == (run.pk, "queued", "operator")
        assert document == json.loads(operator.get(f"runs/{run.pk}?attempts=none").content)
        assert OrmQ.objects.count() == 1

    def test_its_model_settings_are_the_flow_s_own_and_else_the_installation_s(
        self, operator: Script, settings: Any
    ) -> None:
        settings.TOOLFLOW_MODEL, settings.TOOLFLOW_TEMPERATURE, settings.TOOLFLOW_MAX_TOKENS = "gpt-5-mini", 0.5, 900
        make_version(make_flow(make_step(model=None), model="o3", max_tokens=50))
        document = json.loads(operator.post("runs", {"flow": "example", "input": {"topic": "tea"}}).content)
        expected = {"model": "o3", "temperature": 0.5, "max_tokens": 50}
        assert expected.items() <= document["model_settings"].items()

    def test_it_has_everything_that_it_was_given(self, version: FlowVersion, operator: Script) -> None:
        make_version(make_flow(input_schema=closed(other={"type": "string"})))
        given = {
            "version": 1,
            "labels": ["nightly", "customer 42"],
            "metadata": {"order": 4711, "by": {"name": "Zoë"}},
            "priority": "high",
            "token_budget": 20_000,
            "time_limit": 90,
            "webhook_url": "https://example.com/hooks?key=1",
        }
        answer = operator.post("runs", {"flow": "example", "input": {"topic": "tea"}, "cost_budget": "0.50", **given})
        assert answer.status_code == 202, answer.content
        document = json.loads(answer.content)
        assert {name: document[name] for name in given} == {**given, "labels": ["customer 42", "nightly"]}
        assert float(document["cost_budget"]) == 0.5
        assert document == json.loads(operator.get(f"runs/{document['id']}?attempts=none").content)
        run = Run.objects.get()
        assert (run.priority, run.time_limit) == (Priority.HIGH, timedelta(seconds=90))

    def test_a_small_body_that_fits_no_branch_of_a_recursive_union_is_refused_at_its_place(
        self, operator: Script
    ) -> None:
        node = {"$ref": "#/$defs/node"}
        branches = [{"type": "object", "properties": {"a": node, other: node}} for other in "bc"]
        make_version(make_flow(input_schema={**closed(tree=node), "$defs": {"node": {"anyOf": branches}}}))
        body = b'{"flow": "example", "input": {"tree": ' + b'{"a":' * 60 + b"1" + b"}" * 62
        assert read_errors(operator.post("runs", body)).keys() == {"/input/tree"}

    def test_null_is_as_if_it_were_left_out(self, version: FlowVersion, operator: Script) -> None:
        limits = ["token_budget", "cost_budget", "time_limit"]
        names = ["version", "labels", "metadata", "priority", *limits, "webhook_url"]
        answer = operator.post("runs", {"flow": "example", "input": {"topic": "tea"}, **dict.fromkeys(names)})
        assert answer.status_code == 202, answer.content
        document = json.loads(answer.content)
        assert [document[name] for name in names] == [1, [], {}, "normal", None, None, None, None]

    def test_a_budget_may_be_a_number(self, version: FlowVersion, operator: Script) -> None:
        answer = operator.post("runs", {"flow": "example", "input": {"topic": "tea"}, "cost_budget": 0.25})
        assert float(json.loads(answer.content)["cost_budget"]) == 0.25

    @pytest.mark.parametrize(
        ("body", "pointers"),
        [
            ({}, {"/flow", "/input"}),
            ([], {""}),
            ("tea", {""}),
            (b"null", {""}),
            ({"flow": "example", "input": {"topic": 7}}, {"/input/topic"}),
            ({"flow": "example", "input": {"topic": "tea", "a/b": 1}}, {"/input/a~1b"}),
            ({"flow": "example", "input": {}}, {"/input"}),
            ({"flow": "example", "input": None}, {"/input"}),
            ({"flow": "example", "input": [1]}, {"/input"}),
            ({"flow": "example", "input": {"topic": "a\0b"}}, {"/input/topic"}),
            (b'{"flow": "example", "input": {"topic": "\\ud800"}}', {"/input/topic"}),
            (b'{"flow": "example", "input": {"\\ud800": "tea"}}', {"/input"}),
            ({"flow": "nowhere", "input": {"topic": "tea"}}, {"/flow"}),
            ({"flow": "a\0b", "input": {"topic": "tea"}}, {"/flow"}),
            (b'{"flow": "\\ud800", "input": {"topic": "tea"}}', {"/flow"}),
            ({"flow": 7, "input": {"topic": "tea"}}, {"/flow"}),
            ({"flow": "", "input": {"topic": "tea"}}, {"/flow"}),
            ({"flow": "example", "input": {"topic": "tea"}, "version": 2}, {"/version"}),
            ({"flow": "example", "input": {"topic": "tea"}, "version": 10**30}, {"/version"}),
            ({"flow": "example", "input": {"topic": "tea"}, "version": 0}, {"/version"}),
            ({"flow": "example", "input": {"topic": "tea"}, "version": "1"}, {"/version"}),
            ({"flow": "example", "input": {"topic": "tea"}, "version": True}, {"/version"}),
            ({"flow": "example", "input": {"topic": "tea"}, "verison": 1}, {"/verison"}),
            (b'{"flow": "example", "input": {"topic": "tea"}, "\\ud800": 1}', {""}),
        ],
    )
    def test_a_mistake_is_told_where_it_is(
        self, version: FlowVersion, operator: Script, body: Any, pointers: set[str]
    ) -> None:
        assert read_errors(operator.post("runs", body)).keys() == pointers
        assert not Run.objects.exists()

    @pytest.mark.parametrize(
        ("option", "pointer"),
        [
            ({"labels": "nightly"}, "/labels"),
            ({"labels": ["fine", 7]}, "/labels/1"),
            ({"labels": ["fine", "a,b"]}, "/labels/1"),
            ({"labels": ["x" * 51]}, "/labels/0"),
            ({"labels": list("0123456789a")}, "/labels"),
            ({"labels": ["a\nb"]}, "/labels/0"),
            ({"metadata": []}, "/metadata"),
            ({"metadata": {"x": "y" * 16_400}}, "/metadata"),
            ({"metadata": {"x": "\0"}}, "/metadata/x"),
            ({"priority": "urgent"}, "/priority"),
            ({"priority": 1}, "/priority"),
            ({"token_budget": 0}, "/token_budget"),
            ({"token_budget": 10**16}, "/token_budget"),
            ({"token_budget": 1.5}, "/token_budget"),
            ({"token_budget": "20000"}, "/token_budget"),
            ({"cost_budget": "0"}, "/cost_budget"),
            ({"cost_budget": "1e3"}, "/cost_budget"),
            ({"cost_budget": 1e300}, "/cost_budget"),
            ({"cost_budget": True}, "/cost_budget"),
            ({"cost_budget": "٣"}, "/cost_budget"),
            ({"time_limit": -1}, "/time_limit"),
            ({"time_limit": 10**9}, "/time_limit"),
            ({"webhook_url": "javascript:alert(1)"}, "/webhook_url"),
            ({"webhook_url": "https://"}, "/webhook_url"),
            ({"webhook_url": "https://example.com/\r\nHost: x"}, "/webhook_url"),
            ({"webhook_url": ""}, "/webhook_url"),
            ({"webhook_url": "https://example.com/" + "x" * 2_000}, "/webhook_url"),
        ],
    )
    def test_an_option_that_can_not_be_is_told_where_it_is(
        self, version: FlowVersion, operator: Script, option: Any, pointer: str
    ) -> None:
        answer = operator.post("runs", {"flow": "example", "input": {"topic": "tea"}, **option})
        assert read_errors(answer).keys() == {pointer}
        assert not Run.objects.exists()

    @pytest.mark.parametrize("body", [b"{", b"\xff", b'{"flow": "a", "flow": "b"}', b'{"input": NaN}', DEEP])
    def test_what_is_no_json_is_refused_as_such(self, version: FlowVersion, operator: Script, body: bytes) -> None:
        assert read_problem(operator.post("runs", body))["status"] == 400
        assert not Run.objects.exists()

    def test_sentences_say_what_would_be_right(self, version: FlowVersion, operator: Script) -> None:
        wrong = {"flow": "example", "input": {"topic": "tea"}, "version": "one", "priority": "urgent", "cost_budget": 0}
        errors = read_errors(operator.post("runs", wrong))
        assert errors.keys() == {"/version", "/priority", "/cost_budget"}
        assert "'high', 'normal' or 'low'" in errors["/priority"] and "“0.50”" in errors["/cost_budget"]
        unknown = {"flow": "example", "input": {"topic": "tea"}, "version": 7}
        assert read_errors(operator.post("runs", unknown)) == {
            "/version": "“example” has no version of this number; version 1 is live."
        }

    def test_a_flow_that_can_not_be_run_is_a_conflict(self, version: FlowVersion, operator: Script) -> None:
        flow = version.flow
        flow.is_archived = True
        flow.save()
        problem = read_problem(operator.post("runs", {"flow": "example", "input": {"topic": "tea"}}))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:not-runnable")
        assert "archive" in problem["detail"]
        flow.is_archived, flow.live_version = False, None
        flow.save()
        problem = read_problem(operator.post("runs", {"flow": "example", "input": {"topic": "tea"}}))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:not-runnable")

    def test_who_may_not_start_runs_is_told_so(self, version: FlowVersion, viewer: Script, groups: None) -> None:
        body = {"flow": "example", "input": {"topic": "tea"}}
        reading = Script(make_token(make_user("reader", "Operator"), TokenScope.READ))
        for script in (viewer, reading):
            for path in ("runs", "runs/bulk"):
                assert read_problem(script.post(path, body))["status"] == 403
        assert not Run.objects.exists()

    def test_it_takes_few_queries(self, version: FlowVersion, operator: Script, django_assert_num_queries: Any) -> None:
        ApiToken.objects.update(last_used_at=NOON + timedelta(days=10_000))
        # Who asks and what they may do: 3; the flow: 1; the run with its labels and message: 8 with the savepoints.
        with django_assert_num_queries(12):
            operator.post("runs", {"flow": "example", "input": {"topic": "tea"}, "labels": ["a", "b"]})


class TestManyRuns:
    def test_they_are_queued_in_the_order_of_the_list(self, version: FlowVersion, operator: Script) -> None:
        runs = [{"input": {"topic": f"tea {n}"}, "labels": [f"n{n}"], "metadata": {"row": n}} for n in range(30)]
        body = {"flow": "example", "runs": runs, "labels": ["import"], "priority": "low", "time_limit": 60}
        answer = operator.post("runs/bulk", body)
        assert answer.status_code == 202, answer.content
        document = json.loads(answer.content)
        assert (document["flow"], document["version"], document["count"]) == ("example", 1, 30)
        stored = Run.objects.in_bulk([one["id"] for one in document["runs"]])
        for number, one in enumerate(document["runs"]):
            run = stored[one["id"]]
            assert one["url"] == f"http://testserver/api/v1/runs/{run.pk}"
            assert (run.input, run.metadata) == ({"topic": f"tea {number}"}, {"row": number})
            assert (run.labels, run.priority) == (["import", f"n{number}"], Priority.LOW)
            assert run.time_limit == timedelta(seconds=60)
        first = json.loads(operator.get(f"runs/{document['runs'][0]['id']}").content)
        assert first["url"] == document["runs"][0]["url"]
        assert RunFacet.objects.filter(kind="label", value="import").count() == 30
        assert OrmQ.objects.count() == 1

    def test_the_answer_leads_to_exactly_these_runs(self, version: FlowVersion, operator: Script) -> None:
        operator.post("runs", {"flow": "example", "input": {"topic": "tea"}})
        runs = [{"input": {"topic": f"tea {n}"}} for n in range(1_000)]
        answer = operator.post("runs/bulk", {"flow": "example", "runs": runs})
        document = json.loads(answer.content)
        assert (answer["Location"], answer["Retry-After"]) == (document["url"], "1")
        operator.post("runs", {"flow": "example", "input": {"topic": "tea"}})
        found, address = [], f"{answer['Location']}&limit=200"
        while address:
            page = json.loads(operator.get(address).content)
            assert len(page["items"]) == 200
            found += [item["id"] for item in page["items"]]
            address = page["next"]
        assert found[::-1] == [one["id"] for one in document["runs"]]
        (alike,) = json.loads(operator.get(f"runs?limit=1&before={found[800] + 1}").content)["items"]
        assert page["items"][0] == alike
        # What is left to wait for.
        Run.objects.exclude(pk__in=found[:3]).update(status="failed", ended_at=NOON)
        open_ones = json.loads(operator.get(f"{answer['Location']}&status=queued,running").content)
        assert [item["id"] for item in open_ones["items"]] == found[:3]
        other = make_run(make_version(make_flow())).pk
        for first, last in ((found[-1], other), (found[0], found[-1]), (found[-1], 10**30), (10**30, 10**30)):
            assert read_problem(operator.get(f"runs/bulk?first={first}&last={last}"))["status"] == 404

    @pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets one request write at a time")
    def test_runs_that_others_started_in_between_are_not_among_them(
        self, version: FlowVersion, operator: Script
    ) -> None:
        """The numbers of requests at the same time may alternate."""
        mine = [make_run(version) for _ in range(2)]
        other = make_run(version)
        late = make_run(version)
        Run.objects.filter(pk__in=[mine[0].pk, mine[1].pk, late.pk]).update(created_at=NOON)
        found = json.loads(operator.get(f"runs/bulk?first={mine[0].pk}&last={late.pk}").content)
        assert [item["id"] for item in found["items"]] == [late.pk, mine[1].pk, mine[0].pk]
        assert other.pk not in [item["id"] for item in found["items"]]

    @pytest.mark.parametrize("query", ["", "first=1", "last=1", "first=a&last=1", "first=1&last=1&status=no"])
    def test_an_address_that_names_none_is_a_mistake(self, operator: Script, query: str) -> None:
        assert read_problem(operator.get(f"runs/bulk?{query}"))["status"] == 400

    def test_all_mistakes_are_told_at_once_and_nothing_is_started(self, version: FlowVersion, operator: Script) -> None:
        runs = [
            {"input": {"topic": "tea"}},
            {"input": {"topic": 7}},
            {"input": {"topic": "tea"}, "labels": ["x" * 51]},
            {"input": {"topic": "tea"}, "metadata": {"x": "y" * 20_000}},
            {"input": {}},
        ]
        answer = operator.post("runs/bulk", {"flow": "example", "runs": runs, "labels": ["a,b"]})
        pointers = {"/labels/0", "/runs/1/input/topic", "/runs/2/labels/0", "/runs/3/metadata", "/runs/4/input"}
        assert read_errors(answer).keys() == pointers
        assert not Run.objects.exists()

    def test_what_is_no_run_is_told_by_its_place(self, version: FlowVersion, operator: Script) -> None:
        runs = ["tea", {"input": {"topic": "tea"}}, {"inptu": {}}, {"input": 7}, {"input": {}, "labels": [1]}, None]
        answer = operator.post("runs/bulk", {"flow": "example", "runs": runs})
        pointers = {"/runs/0", "/runs/2/inptu", "/runs/2/input", "/runs/3/input", "/runs/4/labels/0", "/runs/5"}
        assert read_errors(answer).keys() == pointers

    def test_labels_of_all_and_of_one_count_together(self, version: FlowVersion, operator: Script) -> None:
        runs = [{"input": {"topic": "tea"}, "labels": list("abcde")}, {"input": {"topic": "tea"}, "labels": ["0"]}]
        answer = operator.post("runs/bulk", {"flow": "example", "runs": runs, "labels": list("012345")})
        assert read_errors(answer).keys() == {"/runs/0/labels"}

    @pytest.mark.parametrize("runs", [[], None, {}, "tea", [{"input": {"topic": "tea"}}] * 1_001])
    def test_there_are_one_to_a_thousand(self, version: FlowVersion, operator: Script, runs: Any) -> None:
        assert read_errors(operator.post("runs/bulk", {"flow": "example", "runs": runs})).keys() == {"/runs"}
        assert not Run.objects.exists()

    def test_a_thousand_are_started_by_one_request(self, version: FlowVersion, operator: Script) -> None:
        answer = operator.post("runs/bulk", {"flow": "example", "runs": [{"input": {"topic": "tea"}}] * 1_000})
        assert answer.status_code == 202, answer.content[:300]
        assert Run.objects.filter(status=RunStatus.QUEUED).count() == 1_000

    def test_the_number_of_queries_does_not_grow_with_their_number(
        self, version: FlowVersion, operator: Script, django_assert_num_queries: Any
    ) -> None:
        ApiToken.objects.update(last_used_at=NOON + timedelta(days=10_000))
        order = {"input": {"topic": "tea"}, "labels": ["nightly"]}
        for count in (1, 15):
            OrmQ.objects.all().delete()
            with django_assert_num_queries(12):
                operator.post("runs/bulk", {"flow": "example", "runs": [order] * count})

    def test_a_version_that_there_is_not_and_a_flow_that_can_not_be_run(
        self, version: FlowVersion, operator: Script
    ) -> None:
        runs = [{"input": {"topic": "tea"}}]
        assert read_errors(operator.post("runs/bulk", {"flow": "nowhere", "runs": runs})).keys() == {"/flow"}
        wrong = {"flow": "example", "version": 9, "runs": runs}
        assert read_errors(operator.post("runs/bulk", wrong)).keys() == {"/version"}
        version.flow.is_archived = True
        version.flow.save()
        problem = read_problem(operator.post("runs/bulk", {"flow": "example", "runs": runs}))
        assert problem["type"] == "urn:toolflow:problem:not-runnable"


class TestRunningAgain:
    @pytest.fixture
    def source(self, version: FlowVersion) -> Run:
        return make_run(
            version,
            status=RunStatus.FAILED,
            ended_at=NOON,
            labels=["nightly"],
            metadata={"order": 4711},
            webhook_url="https://example.com/hooks",
            priority=Priority.LOW,
            token_budget=500,
        )

    def test_the_new_run_is_given_what_the_old_one_was(self, source: Run, operator: Script) -> None:
        answer = operator.post(f"runs/{source.pk}/run-again")
        assert answer.status_code == 202, answer.content
        run = Run.objects.exclude(pk=source.pk).get()
        assert answer["Location"] == f"http://testserver/api/v1/runs/{run.pk}"
        for name in ("input", "version", "labels", "metadata", "webhook_url", "priority", "token_budget"):
            assert getattr(run, name) == getattr(source, name), name
        assert (run.status, str(run.started_by)) == (RunStatus.QUEUED, "operator")
        assert json.loads(answer.content)["again_of"] == source.pk

    def test_what_the_body_says_takes_the_place_of_that(self, source: Run, operator: Script) -> None:
        body = {
            "input": {"topic": "coffee"},
            "labels": ["second try"],
            "metadata": None,
            "webhook_url": None,
            "priority": None,
            "token_budget": None,
            "time_limit": 90,
        }
        document = json.loads(operator.post(f"runs/{source.pk}/run-again", body).content)
        assert {name: document[name] for name in body} == {**body, "metadata": {}, "priority": "normal"}

    def test_it_is_the_same_version_unless_another_is_named(self, source: Run, operator: Script) -> None:
        make_version(make_flow(input_schema=TOPIC, title="Second"))
        make_version(make_flow(input_schema=TOPIC, title="Third"))
        for version, number in (("same", 1), ("live", 3), (2, 2)):
            document = json.loads(operator.post(f"runs/{source.pk}/run-again", {"version": version}).content)
            assert document["version"] == number

    @pytest.mark.parametrize("chosen", [9, 0, "latest", None, "1", True, [], 10**30])
    def test_a_version_that_there_is_not_is_a_mistake(self, source: Run, operator: Script, chosen: Any) -> None:
        answer = operator.post(f"runs/{source.pk}/run-again", {"version": chosen})
        assert read_errors(answer).keys() == {"/version"}

    def test_an_input_that_does_not_fit_another_version_is_the_version_s_fault(
        self, source: Run, operator: Script
    ) -> None:
        make_version(make_flow(input_schema=closed(subject={"type": "string"})))
        errors = read_errors(operator.post(f"runs/{source.pk}/run-again", {"version": "live"}))
        assert errors.keys() == {"/version"}
        assert errors["/version"].startswith(f"The input of run {source.pk} doesn’t fit version 2: ")
        body = {"version": "live", "input": {"subject": 7}}
        assert read_errors(operator.post(f"runs/{source.pk}/run-again", body)).keys() == {"/input/subject"}

    def test_there_is_no_such_run(self, version: FlowVersion, operator: Script) -> None:
        for number in (4711, 10**30):
            assert read_problem(operator.post(f"runs/{number}/run-again"))["status"] == 404

    def test_an_address_that_nothing_is_sent_to_any_more_is_left_out_or_replaced(
        self, source: Run, operator: Script
    ) -> None:
        Run.objects.update(webhook_url="https://hooks.example.com:25/T0")
        errors = read_errors(operator.post(f"runs/{source.pk}/run-again"))
        assert errors["/webhook_url"].startswith(f"That of run {source.pk} can’t be told any more: The port 25 is not")
        assert operator.post(f"runs/{source.pk}/run-again", {"webhook_url": None}).status_code == 202

    def test_who_may_not_see_runs_may_not_run_their_inputs(self, source: Run) -> None:
        user = User.objects.create_user("sender")
        user.user_permissions.set(Permission.objects.filter(codename="add_run"))
        sender = Script(make_token(user))
        problem = read_problem(sender.post(f"runs/{source.pk}/run-again"))
        assert (problem["status"], problem["detail"]) == (403, "Your account lacks the permission “runs.view_run”.")
        assert sender.post("runs", {"flow": "example", "input": {"topic": "tea"}}).status_code == 202
