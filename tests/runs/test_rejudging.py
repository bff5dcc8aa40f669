"""Past attempts judged again by the step as it is typed. Single judgements are in tests/engine/test_judgement.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils.timezone import now
from pydantic import BaseModel, field_validator

from flows.engine import judging_process
from flows.engine.judging_process import BusyError, Case, judge_in_process
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.publishing import publish_flow
from runs.models import Run
from runs.try_out.rejudging import REDACTED, REMOVED, judge_again, load_past_attempts, match_steps
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.runs.pages.history_builders import make_stored_run, store_attempt
from tests.site.test_content_security import InlineFinder

URL = "/admin/flows/flow/judge/"
LONG = AuditSpec(name="Long", rule="output.text.size() > 3", path="'/text'", message="'Only ' + output.text")


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    judging_process.close_processes()


def judge_step(step: StepSpec, *outputs: dict[str, Any], **how: Any) -> list[str]:
    judged = judge_in_process(step, [Case(output, {"input": {}, "steps": []}) for output in outputs], **how)
    return [*(judgement.outcome.value for judgement in judged.judgements), judged.obstacle]


class TestProcess:
    def test_is_stopped_when_the_rules_take_too_long_and_keeps_what_it_has(self) -> None:
        loops = "output.l.all(a, output.l.all(b, output.l.all(c, output.l.all(d, a + b + c + d >= 0))))"
        step = make_step(audits=(AuditSpec(name="Slow", rule=loops),), output_schema={"type": "object"})
        *outcomes, obstacle = judge_step(step, {"l": [1]}, {"l": list(range(300))}, seconds=0.2)
        assert outcomes == ["passed"] and "longer than 0.2 s" in obstacle
        assert judge_step(step, {"l": [1]}) == ["passed", ""]

    def test_that_ended_while_no_user_asked_is_replaced(self) -> None:
        judge_step(make_step(), {"text": "tea"})
        for process in judging_process._idle:
            process.kill()
        assert judge_step(make_step(), {"text": "tea"}) == ["passed", ""]

    def test_there_are_only_so_many_at_a_time(self) -> None:
        taken = [judging_process._slots.acquire() for _ in range(judging_process.MAX_PROCESSES)]
        try:
            with pytest.raises(BusyError):
                judge_step(make_step(), {"text": "tea"}, timeout=0)
        finally:
            judging_process._slots.release(len(taken))


@pytest.mark.sql
@pytest.mark.django_db(transaction=True)
class TestAttempts:
    def test_are_the_latest_of_the_step_by_its_name_else_by_its_number(self) -> None:
        old = make_flow(make_step(1), make_step(2, tool_name="x", name="Renamed"))
        make_stored_run(make_attempt(1), make_attempt(2), spec=old)
        for _ in range(3):
            run = make_stored_run(
                make_attempt(1, 1, "failed"),
                make_attempt(1, 2),
                make_attempt(2),
                spec=make_flow(make_step(1), make_step(2)),
            )
        make_stored_run(make_attempt(1, 1, "errored"), spec=make_flow(), status="errored")
        # What was first is second now.
        spec = make_flow(make_step(9, compute="{}"), make_step(1, audits=(LONG,)))
        attempts, _ = load_past_attempts(run.flow_id, spec, 2, most=3)
        assert [(one.run, one.step, one.number) for one in attempts] == [
            (run.pk, 1, 2),
            (run.pk, 1, 1),
            (run.pk - 1, 1, 2),
        ]
        assert match_steps({"A": 1, "B": 2, "C": 3}, ["B", "New", "D"]) == [2, 0, 3]

    def test_that_retention_or_redaction_changed_are_left_out_and_counted(self) -> None:
        spec = make_flow(
            make_step(1), make_step(2, audits=(AuditSpec(name="A", rule="input.topic != steps[1].output.text"),))
        )
        make_stored_run(make_attempt(1), make_attempt(2), spec=spec, outputs_removed_at=now())
        redacting = spec.model_copy(update={"redact": ("/text",)})
        whole = make_stored_run(make_attempt(1), make_attempt(2), spec=redacting)
        make_stored_run(make_attempt(1, output={"text": "[redacted]"}), make_attempt(2), spec=redacting)
        make_stored_run(make_attempt(1), make_attempt(2, output={"text": "[redacted]"}), spec=redacting)
        run = make_stored_run(make_attempt(1), make_attempt(2), spec=spec, is_input_redacted=True)
        attempts, left_out = load_past_attempts(run.flow_id, spec, 2)
        assert ([one.run for one in attempts], left_out) == ([whole.pk], {REMOVED: 1, REDACTED: 3})

    def test_are_held_against_a_registered_type_and_by_plugins_where_asked(self) -> None:
        class Tea(BaseModel):
            text: str

            @field_validator("text")
            @classmethod
            def refuse(cls, text: str) -> str:
                if "coffee" in text:
                    raise ValueError("no coffee")
                return text

        registry = Registry()
        registry.output_type("tea")(Tea)
        registry.audit("short")(lambda output: len(output.text) < 4 if hasattr(output, "text") else False)
        for text in ("tea", "coffee", "water"):
            run = make_stored_run(make_attempt(1, output={"text": text}), spec=make_flow())
        typed = make_step(output_type="tea")
        attempts, _ = load_past_attempts(run.flow_id, make_flow(typed), 1)
        outcomes = [one.now.outcome.value for one in judge_again(typed, attempts, registry)[0]]
        assert outcomes == ["passed", "invalid", "passed"]
        audited = make_step(output_type="tea", audits=(AuditSpec(name="Short", rule="python:short"),))
        assert judge_again(audited, attempts, registry)[0] == []
        verdicts = judge_again(audited, attempts, registry, in_python=True)[0]
        assert [one.now.outcome.value for one in verdicts] == ["failed", "invalid", "passed"]


class Editor:
    """What the page of a flow asks."""

    def __init__(self, client: Client, spec: FlowSpec) -> None:
        self.client = client
        self.flow = publish_flow(spec=spec).flow
        self.document: dict[str, Any] = spec.to_document()

    def ask(self, step: Any = 1, **posted: Any) -> Any:
        whole = {"flow": self.flow.pk, "document": self.document, "step": step, **posted}
        self.response = self.client.post(URL, json.dumps(whole), content_type="application/json")
        return self.response.json() if self.response["Content-Type"] == "application/json" else {}


@pytest.fixture
def editor(client: Client, db: None) -> Editor:
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return Editor(client, make_flow(make_step(1), make_step(2)))


def store_texts(editor: Editor, *texts: str) -> list[Run]:
    spec = editor.flow.live_version.flow_spec  # type: ignore[union-attr]
    return [make_stored_run(make_attempt(1, output={"text": text}), spec=spec) for text in texts]


class TestPanel:
    def test_tells_what_would_change_and_why(self, editor: Editor) -> None:
        hostile = "<b>\u202e\u0634\u0627\u064a"
        runs = store_texts(editor, "long enough", hostile, "tea")
        old = make_issue("critical", "Was too warm.", code="warm", audit="Warm", path="/text")
        spec = editor.flow.live_version.flow_spec  # type: ignore[union-attr]
        failed = make_stored_run(make_attempt(1, 1, "failed", output={"text": "cold tea"}, issues=(old,)), spec=spec)
        editor.document["steps"][0]["audits"] = [
            {"name": "Short <i>", "rule": "output.text.size() > 6", "path": "'/text'"}
        ]
        answer = editor.ask()
        html = answer["html"]
        assert [answer[name] for name in ("is_judged", "passed", "failed", "changed")] == [True, 3, 1, 2]
        assert "Judged again on the last 4 outputs: 3 pass, 1 fail; 2 would change" in html
        assert html.count("live-square ") == 4 and html.count("would-change") == 2
        for run, then, outcome in (
            (failed, "Failed", "Passed"),
            (runs[2], "Passed", "Failed"),
            (runs[0], "Passed", "Passed"),
        ):
            assert f'data-run="{run.pk}" data-then="{then}" data-now="{outcome}"' in html
        assert f'href="/runs/{runs[2].pk}/steps/1/attempts/1/"' in html
        assert "Gone" in html and "Was too warm." in html and "Now blocks" in html
        editor.document["steps"][0]["audits"][0]["rule"] = "output.text == 'tea'"
        html = editor.ask()["html"]
        assert hostile not in html and "&lt;b&gt;\\u202e" in html and "Short &lt;i&gt;" in html
        assert InlineFinder(html).found == []

    @pytest.mark.parametrize(
        ("fields", "is_judged", "words"),
        [
            ({"audits": [{"name": "A", "rule": "output.text =="}]}, False, "Audit 1 “A”, rule: Line 1"),
            ({"output_schema": '{"type":'}, False, "Output schema: "),
            ({"name": "", "model": 5, "input_expression": "((", "tool_name": "?"}, True, "1 pass"),
            ({"audits": [{"name": "A", "rule": "python:nowhere"}]}, False, "“nowhere”"),
        ],
        ids=["rule", "schema", "elsewhere", "plugin"],
    )
    def test_says_what_keeps_outputs_from_being_judged(
        self, editor: Editor, fields: dict[str, Any], is_judged: bool, words: str
    ) -> None:
        store_texts(editor, "tea")
        editor.document["steps"][0].update(fields)
        editor.document["steps"][1] = {"name": 5}
        answer = editor.ask()
        assert answer["is_judged"] == is_judged and words in answer["html"]

    def test_without_outputs_says_so(self, editor: Editor) -> None:
        assert "No outputs to judge yet" in editor.ask()["html"]
        assert "A new flow has no runs." in editor.ask(flow=None)["html"]

    def test_calls_plugins_only_when_asked(self, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
        called: list[Any] = []
        registry = Registry()
        registry.audit("counted")(lambda output: called.append(output))  # noqa: PLW0108  # its parameter is named
        for module in ("flows.publishing", "runs.admin.judge_panel", "flows.providers"):
            monkeypatch.setattr(f"{module}.registry", registry)
        store_texts(editor, "tea")
        editor.document["steps"][0]["audits"] = [{"name": "A", "rule": "python:counted"}]
        assert 'data-live-action="python"' in editor.ask()["html"] and called == []
        assert editor.ask(python=True)["passed"] == 1 and len(called) == 1

    def test_is_refused_while_too_much_is_judged(self, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise BusyError

        monkeypatch.setattr("runs.admin.judge_panel.judge_again", refuse)
        store_texts(editor, "tea")
        assert "Busy" in editor.ask()["error"]
        assert (editor.response.status_code, editor.response["Retry-After"]) == (503, "1")

    @pytest.mark.parametrize("step", [0, 3, -1, "1", None, True])
    def test_of_no_step_is_refused(self, editor: Editor, step: Any) -> None:
        assert editor.ask(step)["error"] and editor.response.status_code == 400

    @pytest.mark.parametrize(
        ("permissions", "status"),
        [((), 403), (("view_run",), 403), (("change_flow",), 403), (("change_flow", "view_run"), 200)],
    )
    def test_is_for_those_who_change_flows_and_see_runs(
        self, editor: Editor, permissions: tuple[str, ...], status: int
    ) -> None:
        user = User.objects.create_user("eve", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        editor.client.force_login(user)
        editor.ask()
        assert editor.response.status_code == status

    def test_costs_as_many_queries_for_twenty_attempts_as_for_one(
        self, editor: Editor, django_assert_num_queries: Any
    ) -> None:
        editor.document["steps"][1]["audits"] = [{"name": "A", "rule": "input.topic != steps[1].output.text"}]
        spec = editor.flow.live_version.flow_spec  # type: ignore[union-attr]
        for count in (1, 19):
            for _ in range(count):
                run = make_stored_run(make_attempt(1), make_attempt(2, 1, "failed"), spec=spec)
                store_attempt(run, make_attempt(2, 2))
            with django_assert_num_queries(11):
                answer = editor.ask(2)
        assert answer["passed"] == 20
