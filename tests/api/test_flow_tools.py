"""What helps scripts to write flows: check a definition, see the request of a step, have an output audited."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.engine.history import Severity
from flows.engine.spec import AuditSpec, FailAt
from flows.models import Flow, FlowVersion
from runs.models import Attempt, Run
from tests.api.asking import Script, create_token, list_wrong, make_user, read_json, read_problem
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.flows.loading import load_flow
from tests.runs.executing import run_flow
from tests.runs.pages.history_builders import make_stored_run

pytestmark = pytest.mark.django_db

NOT_EMPTY = AuditSpec(name="Not empty", rule="output.text != ''", message="'Say something.'")
ODD = AuditSpec(name="Tea", rule="output.text.contains(input.topic)", severity=Severity.MEDIUM, fail_at=FailAt.NEVER)


def make_trial(*steps: Any, step: int = 1, **fields: Any) -> dict[str, Any]:
    """What is asked about a step; without a word on it, the flow's input is about tea."""
    if "run" not in fields:
        fields = {"input": {"topic": "tea"}, **fields}
    return {"document": make_flow(*steps).to_document(), "step": step, **fields}


def try_out(script: Script, tool: str, *steps: Any, **fields: Any) -> Any:
    return read_json(script.post(f"flows/{tool}", make_trial(*steps, **fields)))


class TestValidate:
    def test_a_good_flow_is_reported_with_the_version_that_storing_it_would_make(self, editor: Script) -> None:
        same, other = (make_flow(make_step(max_retries=retries), title="Tea").to_document() for retries in (1, 2))
        assert read_json(editor.post("flows/validate", same)) == {
            "valid": True,
            "name": "example",
            "digest": make_flow(make_step(max_retries=1), title="Tea").digest,
            "would_make_version": 1,
            "warnings": [],
        }
        assert not Flow.objects.exists()
        load_flow(document=same)
        reported = [read_json(editor.post("flows/validate", document)) for document in (same, other)]
        assert [one["would_make_version"] for one in reported] == [None, 2]
        assert FlowVersion.objects.count() == 1

    def test_mistakes_in_yaml_come_with_pointers_and_lines(self, editor: Script) -> None:
        file = b"name: tea\nsteps:\n  - name: Brew\n    compute: \"{'a': nothing}\"\n    pass_expression: no\n"
        problem = read_problem(editor.post("flows/validate", file, Content_Type="application/yaml"))
        places = [(error["pointer"], error["detail"].partition(":")[0]) for error in problem["errors"]]
        assert places == [("/steps/0/compute", "Line 4, column 5"), ("/steps/0/pass_expression", "Line 5, column 5")]


class TestPreview:
    def test_it_is_the_request_of_a_first_attempt_on_typed_values_or_what_a_local_step_computes(
        self, editor: Script, settings: Any
    ) -> None:
        settings.TOOLFLOW_MODEL = "gpt-5-nano"
        second = make_step(2, model=None, input_expression="{'said': steps[1].output.text}")
        outputs = {"1": {"text": "Green, please."}}
        answer = try_out(editor, "preview", make_step(1), second, step=2, outputs=outputs)
        assert (answer["step"], answer["name"], answer["notes"], answer["problem"]) == (2, "Step 2", [], None)
        request = answer["request"]
        assert request["model"] == "gpt-5-nano"
        assert request["tool_choice"]["function"]["name"] == "tool_2"
        assert "Green, please." in str(request["messages"])
        # Of a local step it is what it computes or why it fails.
        for compute, output in (("{'twice': input.topic + input.topic}", {"twice": "teatea"}), ("input.colour", None)):
            answer = try_out(editor, "preview", make_step(compute=compute))
            assert (answer["request"], answer["output"]) == (None, output)
            assert ("colour" in (answer["problem"] or "")) == (output is None)
        assert not Run.objects.exists()

    @pytest.mark.django_db(transaction=True)
    def test_on_an_earlier_run_it_is_what_that_run_sent(self, editor: Script) -> None:
        strict = AuditSpec(name="Never", rule="false", message="'Not like this.'")
        spec = make_flow(make_step(1), make_step(2, include_results=(1,), audits=(strict,), max_retries=2))
        run = run_flow(spec)
        sent = Attempt.objects.filter(step__run=run, step__index=2).order_by("number")
        assert len(sent) == 3
        for number, attempt in enumerate(sent):
            trial = {"document": spec.to_document(), "step": 2, "run": run.pk, "after_attempt": number}
            assert read_json(editor.post("flows/preview", trial))["request"] == attempt.request

    def test_a_run_must_be_one_of_the_flow_that_went_as_far(self, editor: Script) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3))
        run = make_stored_run(make_attempt(1), spec=spec, status="failed")
        other = make_stored_run(make_attempt(1), spec=spec.model_copy(update={"name": "other"}))
        for step, number, fields, pointer in (
            (1, other.pk, {}, "/run"),
            (1, 10**30, {}, "/run"),
            (3, run.pk, {}, "/run"),
            (1, run.pk, {"after_attempt": 3}, "/after_attempt"),
        ):
            trial = {"document": spec.to_document(), "step": step, "run": number, **fields}
            assert list_wrong(editor.post("flows/preview", trial), 422) == [pointer]

    def test_whoever_may_see_no_runs_types_values(self, groups: None) -> None:
        user = User.objects.create_user("vera")
        user.user_permissions.add(*Permission.objects.filter(codename__in=["view_flow", "change_flow"]))
        script, run = Script(create_token(user)), make_stored_run(make_attempt(1))
        assert read_problem(script.post("flows/preview", make_trial(run=run.pk)))["status"] == 403
        assert read_json(script.post("flows/preview", make_trial()))["request"]


class TestTryAudits:
    def test_an_output_is_judged_issue_by_issue_and_audit_by_audit(self, editor: Script) -> None:
        step = make_step(audits=(NOT_EMPTY, ODD))
        answer = try_out(editor, "try-audits", step, output={"text": ""})
        assert (answer["outcome"], answer["issues"][0]["audit"]) == ("failed", "Not empty")
        assert answer["audits"] == [
            {"name": "Not empty", "fail_at": "critical", "passed": False, "issue_count": 1},
            {"name": "Tea", "fail_at": "never", "passed": True, "issue_count": 1},
        ]
        passed = try_out(editor, "try-audits", step, output={"text": "tea"})
        assert (passed["outcome"], passed["issues"], passed["failure_reason"]) == ("passed", [], None)
        # What breaks its schema is asked of no audit, and characters that no database holds are replaced as in a run.
        invalid = try_out(editor, "try-audits", step, output={"text": 5})
        assert (invalid["outcome"], invalid["audits"], invalid["issues"][0]["path"]) == ("invalid", [], "/text")
        unstorable = json.dumps(make_trial(step, output={"text": "a\0\ud800"})).encode()
        replaced = read_json(editor.post("flows/try-audits", unstorable))
        assert replaced["output"] == {"text": "a\ufffd\ufffd"}

    def test_the_stored_output_of_an_attempt_can_be_audited_by_other_rules(self, editor: Script) -> None:
        failed = make_attempt(1, 1, "failed", output={"text": ""}, issues=(make_issue(),))
        run = make_stored_run(failed, make_attempt(1, 2), spec=make_flow())
        step = make_step(audits=(NOT_EMPTY,))
        for number, outcome in ((1, "failed"), (2, "passed")):
            assert try_out(editor, "try-audits", step, run=run.pk, attempt=number)["outcome"] == outcome
        missing = make_trial(step, run=run.pk, attempt=3)
        assert list_wrong(editor.post("flows/try-audits", missing), 422) == ["/attempt"]


class TestLimit:
    def test_tries_are_limited_together_with_those_in_the_editor(
        self, editor: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page = Client()
        user = User.objects.get(username="editor")
        user.is_staff = True
        user.save()
        page.force_login(user)
        # All of them are in one minute, however long they take.
        monkeypatch.setattr("flows.throttle.time.time", lambda: 1_900_000_000.0)
        for _ in range(58):
            assert page.post("/admin/flows/flow/try/").status_code == 400
        trial = make_trial()
        read_json(editor.post("flows/preview", trial))
        read_json(editor.post("flows/try-audits", {**trial, "output": {"text": "x"}}))
        answer = editor.post("flows/preview", trial)
        assert (read_problem(answer)["status"], 1 <= int(answer["Retry-After"]) <= 60) == (429, True)
        colleague = Script(create_token(make_user("bob", "Editor")))
        read_json(colleague.post("flows/preview", trial))
        read_json(editor.post("flows/validate", trial["document"]))
