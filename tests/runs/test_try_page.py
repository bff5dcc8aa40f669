"""The panel that tries a step: what it shows of the edited page, and how it answers bad input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client

from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from runs.models import Attempt, Run, TrailEntry
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.engine.model_server import ModelServer
from tests.flows.editor_page import EditorPage, fill_new_flow, open_flow
from tests.runs.builders import make_run
from tests.runs.executing import script
from tests.runs.pages.history_builders import make_stored_run, store_attempt
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

URL = "/admin/flows/flow/try/"
NOT_EMPTY = AuditSpec(name="Not empty", rule="output.text != ''")
TWO_STEPS = make_flow(make_step(1), make_step(2, include_results=(1,)))


class Panel:
    """The panel of one step of an open editor page. ``text`` is what it says, without tags, in one line."""

    def __init__(self, client: Client, page: EditorPage, step: str = "steps-0") -> None:
        self.client = client
        self.page = page
        self.step = step
        self.flow = re.sub(r"[^0-9]", "", page.url)
        self.choices: dict[str, str] = {}
        self.html = self.text = ""
        self.status = 0

    def ask(self, action: str = "open", **choices: Any) -> str:
        """Fill in fields, and press a button; gives what the panel says then."""
        self.choices.update({f"try_{name}": str(value) for name, value in choices.items()})
        own = {"flow": self.flow, "try_step": self.step, "try_action": action}
        response = self.client.post(URL, {**self.page.fields, **own, **self.choices})
        self.status = response.status_code
        self.html = response.content.decode()
        self.text = " ".join(unescape(re.sub(r"<[^>]+>", " ", self.html)).split())
        return self.text


def open_panel(client: Client, spec: FlowSpec | None = None, *attempts: Any, step: str = "steps-0") -> Panel:
    """The panel of a step of a stored flow, which has a run if there are attempts."""
    page = open_flow(client, *(spec.steps if spec else ()))
    if spec and attempts:
        make_stored_run(*attempts, spec=spec)
    return Panel(client, page, step)


@pytest.fixture(autouse=True)
def _fresh_counts() -> Iterator[None]:
    """Requests of earlier tests don't count towards rate limits."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def editor(client: Client) -> Client:
    """A browser with the session of a superuser."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


class TestWhatItIsTriedOn:
    def test_is_the_latest_run_at_first(self, editor: Client) -> None:
        attempts = (make_attempt(1, output={"text": "green tea"}), make_attempt(2))
        panel = open_panel(editor, TWO_STEPS, *attempts, step="steps-1")
        panel.page.fill("steps-1-", system_message="Not saved yet.")
        text = panel.ask()
        run = f"#{Run.objects.get().pk} · Succeeded · v2 · "
        for part in ("Try step 2 “Step 2”", "Not saved yet.", '"green tea"', "tool_2", "gpt-4.1", run):
            assert part in text
        assert EditorPage(editor, panel.page.url).fields["steps-1-system_message"] == ""

    def test_without_runs_is_typed_values_that_fit_the_schemas(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(input_schema={"type": "object", "examples": [{"file": "a.pdf"}]})
        panel = Panel(editor, page)
        panel.flow = ""
        text = panel.ask()
        assert "A new flow has no runs yet." in text and '{ "file": "a.pdf" }' in text
        panel = open_panel(editor, TWO_STEPS, step="steps-1")
        panel.ask()
        assert re.search(r'<textarea id="try-output-1"[^>]*>\s*\{\s*&quot;text&quot;', panel.html)

    def test_can_be_another_run_and_a_retry_as_far_as_that_run_has_attempts(self, editor: Client) -> None:
        failed = make_attempt(1, 1, "failed", issues=(make_issue("high", "Too plain."),))
        panel = open_panel(editor, TWO_STEPS, failed, make_attempt(1, 2))
        choices = {"source": "run", "number": f" #{Run.objects.get().pk} "}
        assert "Too plain." in panel.ask("preview", after=1, **choices)
        assert "Too plain." not in panel.ask("preview", after=3, judged=3)
        assert re.search(r'<option value="2" selected>Attempt 2\s+of run', panel.html)

    @pytest.mark.parametrize(
        ("choices", "field", "sentence"),
        [
            ({"source": "run", "number": "99999"}, "try-run", "This flow has no run 99999."),
            ({"source": "run", "number": "twelve"}, "try-run", "“twelve” is not a run number."),
            ({"source": "run"}, "try-run", "not a run number"),
            ({"source": "typed", "input": '{"topic":\n oops}'}, "try-input", "Line 2, column 2"),
            ({"source": "typed", "input": "{}", "output-1": "[]"}, "try-output-1", "object"),
        ],
    )
    def test_that_cant_be_used_is_a_problem_of_its_field(
        self, editor: Client, choices: dict[str, str], field: str, sentence: str
    ) -> None:
        panel = open_panel(editor, TWO_STEPS, step="steps-1")
        text = panel.ask("preview", **choices)
        assert (panel.status, f'href="#{field}"' in panel.html, sentence in text) == (200, True, True)
        assert "First choose what the step is tried on" in panel.ask("judge", judged="pasted", pasted="{}")
        assert "There is no request to send yet." in panel.ask("call")

    def test_is_shown_as_text(self, editor: Client) -> None:
        hostile = "<img src=x onerror=alert(1)>"
        attempts = (make_attempt(1, output={"text": hostile}), make_attempt(2))
        panel = open_panel(editor, TWO_STEPS, *attempts, step="steps-1")
        panel.page.fill("steps-1-", system_message=hostile, name="</textarea><b>")
        typed = {"input": hostile, "output-1": hostile, "pasted": hostile, "number": hostile}
        for choices in ({}, {"source": "run", **typed}, {"source": "typed"}, {"input": f'{{"a": "{hostile}"}}'}):
            panel.ask(**choices)
            assert hostile not in panel.html and "</textarea><b>" not in panel.html
            assert InlineFinder(panel.html).found == []

    def test_may_have_problems_of_the_page(self, editor: Client, provider: ModelServer) -> None:
        spec = make_flow(make_step(1), make_step(2, input_expression="{'text': input.topic}"))
        panel = open_panel(editor, spec, step="steps-1")
        panel.page.fill("steps-0-", input_expression="{'a':")
        panel.page.fill("steps-1-", name="")
        text = panel.ask(source="typed", input='{"topic": "tea"}', **{"output-1": '{"text": "x"}'})
        assert "1 problem of this step" in text and "1 problem elsewhere on the page" in text
        assert 'href="#id_steps-1-name"' in panel.html
        assert '"text" : "tea"' in text
        assert "Fix the problems of this step first" in panel.ask("call")
        assert provider.app.calls == []


class TestAudits:
    def judge(self, panel: Panel, **choices: Any) -> str:
        return panel.ask("judge", **{"source": "run", "run": Run.objects.get().pk, **choices})

    def test_judge_a_stored_output_by_the_rules_of_the_page(self, editor: Client) -> None:
        short = AuditSpec(name="Short", rule="output.text.size() < 2")
        spec = make_flow(make_step(1, audits=(short,), pass_expression="issues.size() < 1"))
        panel = open_panel(editor, spec, make_attempt(1, 1, "failed", output={"text": "tea"}))
        text = self.judge(panel, judged=1)
        assert "as it was judged in the run" in text and "The pass rule decides: no" in text
        panel.page.fill("steps-0-audits-0-", rule="output.text.size() < 9")
        text = self.judge(panel)
        assert "in the run it was: Failed" in text and "Passed Short no issues, fails at critical" in text

    def test_mark_the_lines_of_a_pasted_output(self, editor: Client) -> None:
        rule = AuditSpec(name="Tea", rule="output.text == 'tea'", path="'/text'", suggestions="'Write tea.'")
        panel = open_panel(editor, make_flow(make_step(1, audits=(rule,))), make_attempt(1))
        text = self.judge(panel, judged="pasted", pasted='{"text": "coffee"}')
        assert "Failed Tea 1 issue, fails at critical" in text and "Write tea. /text, line 2" in text
        assert 'data-marks="critical"' in panel.html
        assert "The audits were not asked" in self.judge(panel, pasted='{"text": 1}')
        assert "Line 1, column 9:" in self.judge(panel, pasted='{"text":}')

    def test_of_a_local_step_judge_what_it_computes_at_once(self, editor: Client) -> None:
        spec = make_flow(make_step(1, compute="{'text': input.topic}", audits=(NOT_EMPTY,)))
        panel = open_panel(editor, spec, make_attempt(1))
        assert "The computed output Passed" in panel.ask()
        assert 'data-try-action="call"' not in panel.html

    def test_are_offered_outputs_only(self, editor: Client) -> None:
        panel = open_panel(editor, TWO_STEPS, make_attempt(1, 1, "failed"), make_attempt(1, 2, "errored"))
        panel.ask()
        assert re.findall(r'<option value="(\w+)"(?: selected)?>(?:Attempt|One)', panel.html) == ["1", "pasted"]


class TestModelCall:
    def test_is_judged_and_logged_and_makes_no_run(self, editor: Client, provider: ModelServer) -> None:
        script(provider, tool_1=[{"text": ""}])
        panel = open_panel(editor, make_flow(make_step(1, audits=(NOT_EMPTY,))), make_attempt(1))
        rows = (Run.objects.count(), Attempt.objects.count())
        text = panel.ask("call", source="run", run=Run.objects.get().pk)
        assert "What the model answered Failed" in text and "Failed Not empty 1 issue" in text
        assert "tokens in" in text
        assert (Run.objects.count(), Attempt.objects.count()) == rows
        assert re.search(r"step 1 with one model call \([0-9,]+ tokens\)", LogEntry.objects.get().change_message)
        entry = TrailEntry.objects.get(action="step_tried")
        assert (entry.actor_name, entry.object_kind, entry.object_id) == ("ada", "flow", str(Flow.objects.get().pk))
        assert entry.details["step"] == 1 and entry.details["tokens"] > 0
        # The answer can be checked again without another call.
        assert '<option value="pasted" selected>' in panel.html
        assert "{\n  &quot;text&quot;: &quot;&quot;\n}</textarea>" in panel.html
        assert len(provider.app.calls) == 1

    def test_of_a_flow_that_is_not_stored_is_logged_too(self, editor: Client, provider: ModelServer) -> None:
        panel = Panel(editor, fill_new_flow(editor))
        panel.flow = ""
        panel.ask("call", source="typed", input="{}")
        assert LogEntry.objects.get().object_repr == "Invoice extraction"
        assert TrailEntry.objects.get(action="step_tried").object_label == "Invoice extraction"

    def test_without_an_answer_or_a_usable_reply_shows_what_came(
        self, editor: Client, provider: ModelServer, settings: Any
    ) -> None:
        script(provider, tool_1=[Fault(FaultKind.REFUSAL)])
        panel = open_panel(editor)
        assert "What the model answered Invalid output" in panel.ask("call", source="typed", input="{}")
        settings.TOOLFLOW_OPENAI_BASE_URL = settings.TOOLFLOW_OPENAI_BASE_URL.replace("/v1", "/v2")
        text = panel.ask("call")
        assert "No answer:" in text and "(HTTP 404)" in text
        assert TrailEntry.objects.latest("pk").details == {"step": 1, "error": "not_found"}

    def test_can_be_made_ten_times_a_minute(
        self, editor: Client, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        panel = open_panel(editor)
        # All of them are in one minute, however long they take.
        monkeypatch.setattr("flows.throttle.time.time", lambda: 1_900_000_000.0)
        statuses = []
        for _ in range(11):
            panel.ask("call", source="typed", input="{}")
            statuses.append(panel.status)
        assert (statuses, len(provider.app.calls)) == ([200] * 10 + [429], 10)


class TestPermissions:
    def sign_in(self, client: Client, *permissions: str) -> None:
        user = User.objects.create_user("eve", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client.force_login(user)

    def test_the_panel_is_for_those_who_may_change_flows(self, client: Client, editor: Client) -> None:
        panel = open_panel(editor)
        client.logout()
        panel.ask()
        assert panel.status == 302
        self.sign_in(client, "view_flow")
        panel.ask()
        assert panel.status == 403

    def test_runs_are_for_those_who_may_see_them(self, client: Client, editor: Client) -> None:
        attempts = (make_attempt(1, output={"text": "secret"}), make_attempt(2))
        panel = open_panel(editor, TWO_STEPS, *attempts, step="steps-1")
        self.sign_in(client, "view_flow", "change_flow")
        text = panel.ask()
        assert "Your account may not see runs." in text and "secret" not in text
        run = Run.objects.get().pk
        for action in ("preview", "judge"):
            text = panel.ask(action, source="run", run=run, judged=1)
            assert "it lacks “runs.view_run”" in text and "secret" not in text

    def test_calls_are_for_those_who_may_start_runs(
        self, client: Client, editor: Client, provider: ModelServer
    ) -> None:
        panel = open_panel(editor)
        self.sign_in(client, "view_flow", "change_flow", "view_run")
        assert "it lacks “runs.add_run”" in panel.ask()
        panel.ask("call", source="typed", input="{}")
        assert (panel.status, provider.app.calls) == (403, [])


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 400),
        ({"try_action": "call", "flow": "9" * 40, "try_step": "steps-0"}, 404),
        ({"try_action": "open", "try_step": "steps-0", "steps-TOTAL_FORMS": "-1"}, 404),
    ],
)
def test_what_no_page_posts_is_refused(editor: Client, fields: dict[str, str], status: int) -> None:
    response = editor.post(URL, fields)
    assert (response.status_code, bool(response.json()["error"])) == (status, True)


@pytest.mark.parametrize("action", ["open", "preview", "judge", "call"])
def test_values_that_are_not_valid_are_answered(editor: Client, action: str) -> None:
    panel = open_panel(editor, TWO_STEPS, make_attempt(1), step="steps-1")
    bad = {"after": "-1", "judged": "x" * 99, "output-x": "1", "output-999999999": "{}", "input": "\0"}
    panel.ask(action, source="typed", **bad)
    assert panel.status == 200
    # A schema is being written.
    for field in ("steps-1-output_schema", "input_schema", "steps-0-output_schema"):
        panel.page.fields[field] = '{"type": 5}'
        panel.ask(action, source="typed", input="{}", pasted="{}", judged="pasted", **{"output-1": "{}"})
        assert panel.status == 200
    # Now the page itself can't be read.
    panel.page.fields["steps-1-id"] = panel.page.fields["steps-0-id"]
    panel.ask(action)
    assert (panel.status, 'class="problems"' in panel.html) == (200, True)
    assert 'data-try-action="call"' not in panel.html


def test_queries_do_not_grow_with_the_history(editor: Client, django_assert_num_queries: Any) -> None:
    panel = open_panel(editor, make_flow(make_step(1), make_step(2)), make_attempt(1, 1, "failed"))
    run = Run.objects.get()
    for count in (1, 6):
        for number in range(2, count + 1):
            store_attempt(run, make_attempt(1, number, "failed"))
            make_run(run.version)
        for action in ("open", "preview", "judge"):
            with django_assert_num_queries(10):
                panel.ask(action, source="run", run=run.pk, judged=1)
        panel.choices.clear()
