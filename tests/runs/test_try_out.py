"""A step of the edited document that is tried, and its one model call. What a trial is made of: tests/api."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.engine.history import AttemptError
from flows.engine.plugins import Registry
from flows.engine.reply import ToolReply
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from flows.publishing import publish_flow
from runs.models import Attempt, AuditEntry, FlowSpending, RateLimit, Run
from runs.try_out.model_call import NotSentError, call_model
from runs.try_out.trial import try_on_values
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run
from tests.runs.executing import script
from tests.runs.pages.history_builders import make_stored_run, store_attempt
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

URL = "/admin/flows/flow/try/"
NOT_EMPTY = AuditSpec(name="Not empty", rule="output.text != ''")
TWO_STEPS = make_flow(make_step(1), make_step(2, include_results=(1,)))
ATTEMPTS = (make_attempt(1, output={"text": "green tea"}), make_attempt(2))


class Panel:
    """The panel of one step of a document. ``text`` is what it says, without tags, in one line."""

    def __init__(self, client: Client, spec: FlowSpec, flow: Flow | None, step: int) -> None:
        self.client = client
        self.document: dict[str, Any] = spec.to_document()
        self.fixed = {"flow": "" if flow is None else str(flow.pk), "try_step": str(step)}
        self.choices: dict[str, str] = {}
        self.html = self.text = ""
        self.status = 0

    def ask(self, action: str = "open", **choices: Any) -> str:
        """Fill in fields, and press a button; gives what the panel says then."""
        self.choices.update({f"try_{name}": str(value) for name, value in choices.items()})
        posted = {**self.fixed, **self.choices, "try_action": action, "document": json.dumps(self.document)}
        response = self.client.post(URL, posted)
        self.status = response.status_code
        self.html = response.json().get("html", "") if response["Content-Type"] == "application/json" else ""
        self.text = " ".join(unescape(re.sub(r"<[^>]+>", " ", self.html)).split())
        return self.text


def open_panel(client: Client, spec: FlowSpec | None = None, *attempts: Any, step: int = 1) -> Panel:
    """The panel of a step of a stored flow, which has a run if there are attempts."""
    spec = spec or make_flow()
    flow = publish_flow(spec=spec).flow
    if attempts:
        make_stored_run(*attempts, spec=spec)
    return Panel(client, spec, flow, step)


@pytest.fixture
def editor(client: Client) -> Client:
    """A browser with the session of a superuser."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


class TestWhatItIsTriedOn:
    def test_is_the_latest_run_at_first(self, editor: Client) -> None:
        panel = open_panel(editor, TWO_STEPS, *ATTEMPTS, step=2)
        panel.document["steps"][1]["system_message"] = "Not saved yet."
        text = panel.ask()
        for part in ("Not saved yet.", '"green tea"', "tool_2", f"#{Run.objects.get().pk} · Succeeded"):
            assert part in text
        assert 'data-basis="run"' in panel.html

    def test_without_runs_is_typed_values_that_fit_the_schemas(self, editor: Client) -> None:
        spec = make_flow(input_schema={"type": "object", "examples": [{"file": "a.pdf"}]})
        panel = Panel(editor, spec, None, 1)
        assert '{ "file": "a.pdf" }' in panel.ask() and 'data-basis="typed"' in panel.html

    @pytest.mark.parametrize(
        ("choices", "field"),
        [
            ({"number": "99999"}, "try-run"),
            ({"number": "twelve"}, "try-run"),
            ({"basis": "x"}, "try-run"),
            ({"basis": "typed", "input": '{"topic":\n oops}'}, "try-input"),
            ({"basis": "typed", "input": "{}", "output-1": "[]"}, "try-output-1"),
        ],
    )
    def test_that_cant_be_used_is_a_problem_of_its_field(
        self, editor: Client, provider: ModelServer, choices: dict[str, str], field: str
    ) -> None:
        panel = open_panel(editor, TWO_STEPS, step=2)
        panel.ask("preview", **choices)
        assert (panel.status, f'href="#{field}"' in panel.html) == (200, True)
        panel.ask("call")
        assert provider.app.calls == []

    def test_is_shown_as_text(self, editor: Client) -> None:
        hostile = "<img src=x onerror=alert(1)>"
        panel = open_panel(editor, TWO_STEPS, make_attempt(1, output={"text": hostile}), make_attempt(2), step=2)
        panel.document["steps"][1] |= {"system_message": hostile, "name": "</textarea><b>"}
        typed = {"input": hostile, "output-1": hostile, "pasted": hostile, "number": hostile}
        for choices in ({}, typed, {"number": "", "basis": "typed"}, {"input": f'{{"a": "{hostile}"}}'}):
            panel.ask("preview" if choices else "open", **choices)
            assert panel.html and hostile not in panel.html and "</textarea><b>" not in panel.html
            assert InlineFinder(panel.html).found == []


class TestAudits:
    def test_judge_a_pasted_output_by_the_rules_of_the_page(self, editor: Client) -> None:
        rule = AuditSpec(name="Tea", rule="output.text == 'tea'", path="'/text'", suggestions="'Write tea.'")
        panel = open_panel(editor, make_flow(make_step(1, audits=(rule,))), make_attempt(1))
        text = panel.ask("judge", basis="typed", input="{}", pasted='{"text": "coffee"}')
        assert "The pasted output Failed" in text and "Tea /text" in text and "coffee" in text
        panel.document["steps"][0]["audits"][0]["rule"] = "output.text == 'coffee'"
        assert "The pasted output Passed" in panel.ask("judge")
        assert 'data-check="unreached"' in (panel.ask("judge", pasted='{"text": 1}') and panel.html)
        assert "Line 1, column 9:" in panel.ask("judge", pasted='{"text":}')


class TestModelCall:
    def send(self, flow: Flow | None = None, *, retry_window: int | None = 0) -> ToolReply | AttemptError:
        spec = make_flow(make_step(1, model="gpt-4.1", retry_window=retry_window))
        trial = try_on_values(spec, 1, {"topic": "tea"}, {})
        request = trial.preview(Registry()).request
        assert request is not None
        return call_model(trial, request, flow_id=flow.pk if flow else None)[0]

    def test_is_judged_and_logged_and_makes_no_run(self, editor: Client, provider: ModelServer) -> None:
        script(provider, tool_1=[{"text": ""}])
        panel = open_panel(editor, make_flow(make_step(1, audits=(NOT_EMPTY,))), make_attempt(1))
        rows = (Run.objects.count(), Attempt.objects.count())
        text = panel.ask("call", basis=Run.objects.get().pk)
        assert "What the model answered Failed" in text and 'data-check="failed"' in panel.html
        assert (Run.objects.count(), Attempt.objects.count(), len(provider.app.calls)) == (*rows, 1)
        assert re.search(r"step 1 with one model call \([0-9,]+ tokens\)", LogEntry.objects.get().change_message)
        entry = AuditEntry.objects.get(action="step_tried")
        assert (entry.actor_name, entry.object_kind, entry.object_id) == ("ada", "flow", str(Flow.objects.get().pk))
        assert entry.details["step"] == 1 and entry.details["tokens"] > 0
        # The answer can be checked again without another call.
        assert '{ "text": "" }' in text and "Not empty" in panel.ask("judge", pasted='{"text": ""}')

    def test_without_an_answer_or_a_usable_reply_shows_what_came(
        self, editor: Client, provider: ModelServer, settings: Any
    ) -> None:
        script(provider, tool_1=[Fault(FaultKind.REFUSAL)])
        panel = open_panel(editor)
        assert "What the model answered Invalid output" in panel.ask("call", basis="typed", input="{}")
        settings.TOOLFLOW_OPENAI_BASE_URL = settings.TOOLFLOW_OPENAI_BASE_URL.replace("/v1", "/v2")
        assert "(HTTP 404)" in panel.ask("call")
        assert AuditEntry.objects.latest("pk").details == {"step": 1, "error": "not_found"}

    def test_can_be_made_ten_times_a_minute(
        self, editor: Client, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        panel = open_panel(editor)
        # All of them are in one minute, however long they take.
        monkeypatch.setattr("flows.throttle.time.time", lambda: 1_900_000_000.0)
        statuses = []
        for _ in range(11):
            panel.ask("call", basis="typed", input="{}")
            statuses.append(panel.status)
        assert (statuses, len(provider.app.calls)) == ([200] * 10 + [429], 10)

    def test_is_charged_to_the_budget_of_its_flow_until_that_is_used_up(self, provider: ModelServer) -> None:
        flow = Flow.objects.create(name="example", title="Example", total_token_budget=1)
        answer = self.send(flow)
        spending = FlowSpending.objects.get(flow=flow)
        assert isinstance(answer, ToolReply)
        assert (spending.tokens, spending.cost, spending.tokens > 0) == (answer.usage.total, Decimal(0), True)
        with pytest.raises(NotSentError, match="share a budget"):
            self.send(flow)
        assert len(provider.app.calls) == 1

    def test_goes_through_the_rate_limits_and_releases_its_permit(self, provider: ModelServer) -> None:
        RateLimit.objects.create(model="", calls_in_flight=1)
        self.send()
        RateLimit.objects.create(model="gpt-4*", requests_per_minute=1)
        self.send()
        with pytest.raises(NotSentError, match=r"Try again in \d+ [sm]"):
            self.send()
        assert len({call.idempotency_key for call in provider.app.calls}) == 2


class TestPermissions:
    @pytest.fixture
    def panel(self, editor: Client) -> Panel:
        panel = open_panel(editor, TWO_STEPS, *ATTEMPTS, step=2)
        editor.logout()
        return panel

    def sign_in(self, client: Client, *permissions: str) -> None:
        user = User.objects.create_user("eve", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client.force_login(user)

    def test_the_panel_is_for_those_who_may_change_flows(self, client: Client, panel: Panel) -> None:
        panel.ask()
        assert panel.status == 302
        self.sign_in(client, "view_flow")
        panel.ask()
        assert panel.status == 403

    def test_runs_are_for_those_who_may_see_them(self, client: Client, panel: Panel) -> None:
        self.sign_in(client, "view_flow", "change_flow")
        for action in ("open", "preview", "judge"):
            text = panel.ask(action, basis=Run.objects.get().pk)
            assert "it lacks “runs.view_run”" in text and "green tea" not in text

    def test_calls_are_for_those_who_may_start_runs(self, client: Client, panel: Panel, provider: ModelServer) -> None:
        self.sign_in(client, "view_flow", "change_flow", "view_run")
        assert "it lacks “runs.add_run”" in panel.ask()
        panel.ask("call", basis="typed", input="{}")
        assert (panel.status, provider.app.calls) == (403, [])


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 400),
        ({"try_action": "call", "flow": "9" * 40, "try_step": "1"}, 404),
        ({"try_action": "open", "try_step": "1", "document": "[]"}, 400),
        ({"try_action": "open", "try_step": "2", "document": '{"steps": [{}]}'}, 404),
        ({"try_action": "open", "try_step": "-1", "document": '{"steps": 5}'}, 404),
    ],
    ids=["nothing", "flow", "document", "step", "steps"],
)
def test_what_no_page_posts_is_refused(editor: Client, fields: dict[str, str], status: int) -> None:
    response = editor.post(URL, fields)
    assert (response.status_code, bool(response.json()["error"])) == (status, True)


@pytest.mark.parametrize("action", ["open", "preview", "judge", "invent", "call"])
def test_values_that_are_not_valid_are_answered(editor: Client, action: str) -> None:
    panel = open_panel(editor, TWO_STEPS, make_attempt(1), step=2)
    bad = {"after": "-1", "output-x": "1", "output-999999999": "{}", "input": "\0"}
    panel.ask(action, basis="typed", **bad)
    assert panel.status == 200
    # A schema is being written.
    for field, part in (("output_schema", panel.document["steps"][1]), ("input_schema", panel.document)):
        for schema in ({"type": 5}, '{"type":'):
            part[field] = schema
            panel.ask(action, basis="typed", input="{}", pasted="{}", **{"output-1": "{}"})
            assert panel.status == 200
    # Now the step itself can't be read, and at last nothing can.
    for steps in ([{"name": 5}, 5], [{"name": 5}, {"compute": "(("}]):
        panel.document["steps"] = steps
        panel.ask(action)
        assert (panel.status, bool(panel.html)) == (200, True)


def test_queries_do_not_grow_with_the_history(editor: Client, django_assert_num_queries: Any) -> None:
    panel = open_panel(editor, make_flow(make_step(1), make_step(2)), make_attempt(1, 1, "failed"))
    run = Run.objects.get()
    for count in (1, 6):
        for number in range(2, count + 1):
            store_attempt(run, make_attempt(1, number, "failed"))
            make_run(run.version)
        for action in ("open", "preview", "judge"):
            with django_assert_num_queries(7):
                panel.ask(action, basis=run.pk)
        panel.choices.clear()
