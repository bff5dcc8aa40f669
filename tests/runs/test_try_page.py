"""The panel that tries a step: what it shows of the edited page, and what it answers to bad input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client

from flows.engine.spec import AuditSpec
from flows.models import Flow
from runs.models import Attempt, FlowSpending, Run, TrailEntry
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.engine.model_server import ModelServer
from tests.flows.editor_page import EditorPage, fill_new_flow, open_flow
from tests.runs.builders import make_run
from tests.runs.executing import script
from tests.runs.pages.history_builders import make_stored_run, store_attempt
from tests.runs.try_panel import URL, Panel, open_panel, open_with_run
from tests.site.test_content_security import InlineFinder

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

NOT_EMPTY = AuditSpec(name="Not empty", rule="output.text != ''")


@pytest.fixture(autouse=True)
def _fresh_counts() -> Iterator[None]:
    """How often somebody asked in the tests before is forgotten."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def editor(client: Client) -> Client:
    """A browser in which somebody is signed in who may do everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


TWO_STEPS = make_flow(make_step(1), make_step(2, include_results=(1,)))


class TestOpening:
    def test_shows_the_request_that_the_edited_step_would_send_in_the_latest_run(self, editor: Client) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1, output={"text": "green tea"}), make_attempt(2))
        panel.step = "steps-1"
        panel.page.fill("steps-1-", system_message="Not saved yet.")
        text = panel.ask()
        assert panel.status == 200
        assert "Try step 2 “Step 2”" in text
        assert "Not saved yet." in text and '"green tea"' in text
        assert "tool_2" in text and "gpt-4.1" in text

    def test_offers_the_runs_with_number_state_and_version(self, editor: Client) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1), status="failed")
        run = Run.objects.get()
        assert f"#{run.pk} · Failed · v2 · " in panel.ask()
        panel.step = "steps-1"
        assert "did not get here" in panel.ask()

    def test_of_a_new_flow_takes_typed_values_that_fit_its_schemas(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(input_schema={"type": "object", "examples": [{"file": "a.pdf"}]})
        panel = Panel(editor, page)
        panel.flow = ""
        text = panel.ask()
        assert "A new flow has no runs yet." in text
        assert '{ "file": "a.pdf" }' in text

    def test_asks_for_the_outputs_of_earlier_steps_where_no_run_has_them(self, editor: Client) -> None:
        panel = open_panel(editor, TWO_STEPS, "steps-1")
        text = panel.ask()
        assert "Output of step 1 “Step 1”" in text
        assert "Steps before this one are not run" in text

    def test_stores_nothing_and_brings_no_markup_of_its_own(self, editor: Client) -> None:
        hostile = "<img src=x onerror=alert(1)>"
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1, output={"text": hostile}), make_attempt(2))
        panel.step = "steps-1"
        panel.page.fill("steps-1-", system_message=hostile, name="</textarea><b>")
        before = panel.page.fields["steps-0-name"]
        typed = {"input": hostile, "output_1": hostile, "pasted": hostile, "number": hostile}
        for choices in ({}, {"source": "run", **typed}, {"source": "typed"}, {"input": f'{{"a": "{hostile}"}}'}):
            panel.ask(**choices)
            assert hostile not in panel.html and "</textarea><b>" not in panel.html
            assert InlineFinder(panel.html).found == []
        again = EditorPage(editor, panel.page.url)
        assert (again.fields["steps-0-name"], again.fields["steps-1-system_message"]) == (before, "")

    def test_lists_the_problems_of_the_step_with_links_and_those_elsewhere_by_number(self, editor: Client) -> None:
        panel = open_panel(editor, make_flow(make_step(1), make_step(2, input_expression="{'text': input.topic}")))
        panel.step = "steps-1"
        panel.page.fill("steps-0-", system_message="x", input_expression="{'a':")
        panel.page.fill("steps-1-", name="", tool_name="tool_2")
        text = panel.ask(source="typed", input='{"topic": "tea"}', output_1='{"text": "x"}')
        assert "1 problem of this step" in text and "1 problem elsewhere on the page" in text
        assert 'href="#id_steps-1-name"' in panel.html
        assert '"text" : "tea"' in text
        assert "Try step 2 “Step 2”" in text
        assert "Mend the problems of this step first" in text

    def test_says_what_is_wrong_where_the_page_cant_be_read_at_all(self, editor: Client) -> None:
        panel = open_panel(editor)
        panel.page.fields["steps-TOTAL_FORMS"] = "0"
        panel.ask()
        assert (panel.status, "no longer on the page" in panel.text) == (404, True)


class TestWhatItWorksOn:
    def test_can_be_another_run_by_its_number_as_a_retry(self, editor: Client) -> None:
        failed = make_attempt(1, 1, "failed", issues=(make_issue("high", "Too plain."),))
        panel = open_with_run(editor, TWO_STEPS, failed, make_attempt(1, 2))
        run = Run.objects.get()
        text = panel.ask("preview", source="run", number=run.pk, after=1)
        assert "## Current step attempts" in text and "Too plain." in text
        assert "The retry after attempt 1 (failed)" in text

    def test_starts_with_a_first_attempt_when_another_run_has_fewer(self, editor: Client) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1))
        text = panel.ask("preview", source="run", run=Run.objects.get().pk, after=3, judged=3)
        assert "has no attempt" not in text
        assert re.search(r'<option value="1" selected>Attempt 1 of run', panel.html)

    def test_names_the_run_where_it_has_no_such_attempt(self, editor: Client) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1))
        number = Run.objects.get().pk
        assert f"Run : Run {number} has no attempt 3 of step 1." in panel.ask("call", source="run", run=number, after=3)
        assert 'href="#try-run"' in panel.html

    @pytest.mark.parametrize(
        ("choices", "sentence"),
        [
            ({"source": "run", "number": "99999"}, "There is no run 99999."),
            ({"source": "run", "number": "one"}, "“one” is no number of a run"),
            ({"source": "run"}, "“” is no number of a run"),
            ({"source": "typed", "input": '{"topic":\n oops}'}, "Line 2, column 2:"),
            ({"source": "typed", "input": ""}, "The text is empty; a JSON object such as {} is expected."),
            ({"source": "elsewhere"}, "The text is empty"),
        ],
    )
    def test_that_cant_be_used_is_said_in_the_panel(
        self, editor: Client, choices: dict[str, str], sentence: str
    ) -> None:
        panel = open_panel(editor)
        assert sentence in panel.ask("preview", **choices)
        assert panel.status == 200
        assert "First say what the step works on" in panel.ask("judge", judged="pasted", pasted="{}")
        assert "There is no request to send yet." in panel.ask("call")

    def test_is_no_run_of_another_flow(self, editor: Client) -> None:
        other = make_stored_run(make_attempt(1))
        panel = open_panel(editor)
        assert "is a run of another flow" in panel.ask("preview", source="run", number=other.pk)


class TestAudits:
    def judge(self, panel: Panel, **choices: Any) -> str:
        return panel.ask("judge", **{"source": "run", "run": Run.objects.get().pk, **choices})

    def test_say_of_a_stored_output_what_they_would_say_now(self, editor: Client) -> None:
        spec = make_flow(make_step(1, audits=(AuditSpec(name="Short", rule="output.text.size() < 2"),)))
        panel = open_with_run(editor, spec, make_attempt(1, 1, "failed", output={"text": "tea"}), status="failed")
        text = self.judge(panel, judged=1)
        assert "Attempt 1 of run" in text and "as it was judged in the run" in text
        panel.page.fill("steps-0-audits-0-", rule="output.text.size() < 9")
        text = self.judge(panel)
        assert "Passed in the run it was: Failed" in text
        assert "Passed Short no issues, fails at critical" in text

    def test_mark_the_lines_of_a_pasted_output(self, editor: Client) -> None:
        rule = AuditSpec(name="Tea", rule="output.text == 'tea'", path="'/text'", suggestions="'Write tea.'")
        panel = open_with_run(editor, make_flow(make_step(1, audits=(rule,))), make_attempt(1))
        text = self.judge(panel, judged="pasted", pasted='{"text": "coffee"}')
        assert "The pasted output Failed Failed Tea 1 issue, fails at critical" in text
        assert "Write tea. /text, line 2" in text
        assert 'data-marks="critical"' in panel.html

    def test_are_not_asked_about_what_breaks_the_schema(self, editor: Client) -> None:
        panel = open_with_run(editor, make_flow(make_step(1, audits=(NOT_EMPTY,))), make_attempt(1))
        text = self.judge(panel, judged="pasted", pasted='{"text": 1}')
        assert "Invalid output" in text and "The audits were not asked" in text

    def test_leave_the_last_word_to_a_pass_rule(self, editor: Client) -> None:
        spec = make_flow(make_step(1, audits=(NOT_EMPTY,), pass_expression="issues.size() > 5"))
        panel = open_with_run(editor, spec, make_attempt(1))
        text = self.judge(panel, judged=1)
        assert "The pass rule decides: no . issues.size() > 5" in text
        assert "Passed Not empty" in text

    def test_of_a_local_step_judge_what_it_computes_at_once(self, editor: Client) -> None:
        spec = make_flow(make_step(1, compute="{'text': input.topic}", audits=(NOT_EMPTY,)))
        text = open_with_run(editor, spec, make_attempt(1)).ask()
        assert "What it computes" in text and "The computed output Passed" in text
        assert "Send it to the model" not in text

    @pytest.mark.parametrize(
        ("choices", "sentence"),
        [
            ({"judged": "pasted", "pasted": '{"text":}'}, "The pasted output can't be read. Line 1, column 9:"),
            ({"judged": "pasted", "pasted": "[1]"}, "A JSON object is expected, got a list."),
            ({"judged": "7"}, "There is no attempt 7 of this step"),
            ({"judged": "2"}, "Attempt 2 left no output that could be audited."),
        ],
    )
    def test_say_so_where_there_is_no_output(self, editor: Client, choices: dict[str, str], sentence: str) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1, 1, "failed"), make_attempt(1, 2, "errored"))
        assert sentence in self.judge(panel, **choices)
        assert panel.status == 200


class TestOneCall:
    def test_shows_the_answer_judged_and_counted_and_keeps_no_run(self, editor: Client, provider: ModelServer) -> None:
        script(provider, tool_1=[{"text": ""}])
        panel = open_with_run(editor, make_flow(make_step(1, audits=(NOT_EMPTY,))), make_attempt(1))
        rows = (Run.objects.count(), Attempt.objects.count())
        text = panel.ask("call", source="run", run=Run.objects.get().pk)
        assert "What the model answered Failed" in text and "Failed Not empty 1 issue" in text
        assert "tokens in" in text
        assert (Run.objects.count(), Attempt.objects.count()) == rows
        assert re.search(
            r"Tried step 1 with one model call \([0-9,]+ tokens\)\.", LogEntry.objects.get().change_message
        )
        entry = TrailEntry.objects.get(action="step_tried")
        assert (entry.actor_name, entry.object_kind, entry.object_id) == ("ada", "flow", str(Flow.objects.get().pk))
        assert entry.details["step"] == 1 and entry.details["tokens"] > 0
        # What it answered can be checked again without another call.
        assert '<option value="pasted" selected>' in panel.html
        assert "Passed" in panel.ask("judge", judged="pasted", pasted='{"text": "tea"}')
        assert len(provider.app.calls) == 1

    def test_of_a_flow_that_is_not_stored_is_logged_too(self, editor: Client, provider: ModelServer) -> None:
        panel = Panel(editor, fill_new_flow(editor))
        panel.flow = ""
        panel.ask("call", source="typed", input="{}")
        assert len(provider.app.calls) == 1
        assert LogEntry.objects.get().object_repr == "Invoice extraction"
        entry = TrailEntry.objects.get(action="step_tried")
        assert (entry.actor_name, entry.object_id, entry.object_label) == ("ada", "", "Invoice extraction")

    def test_counts_towards_the_budget_of_the_stored_flow(self, editor: Client, provider: ModelServer) -> None:
        page = open_flow(editor)
        page.fill(total_token_budget=1)
        page.save()
        panel = Panel(editor, page)
        panel.page.fill(total_token_budget=9_000)
        assert "What the model answered" in panel.ask("call", source="typed", input="{}")
        assert FlowSpending.objects.get().tokens > 1
        text = panel.ask("call")
        assert "Nothing was sent. All runs of the flow “example” share a budget" in text
        assert len(provider.app.calls) == 1

    def test_that_brings_nothing_usable_says_why(self, editor: Client, provider: ModelServer, settings: Any) -> None:
        panel = open_panel(editor)
        settings.TOOLFLOW_OPENAI_BASE_URL = settings.TOOLFLOW_OPENAI_BASE_URL.replace("/v1", "/v2")
        text = panel.ask("call", source="typed", input="{}")
        assert "No answer:" in text and "(HTTP 404)" in text
        assert "(no answer: not_found)" in LogEntry.objects.get().change_message

    def test_is_not_made_from_a_step_with_problems(self, editor: Client, provider: ModelServer) -> None:
        panel = open_panel(editor)
        panel.page.fill("steps-0-", max_retries=-1)
        assert "Mend the problems of this step first" in panel.ask("call", source="typed", input="{}")
        assert provider.app.calls == []

    def test_can_be_made_ten_times_a_minute(
        self, editor: Client, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        panel = open_panel(editor)
        # All of them fall into one minute, however long they take.
        monkeypatch.setattr("flows.admin.throttle.time.time", lambda: 1_900_000_000.0)
        for _ in range(10):
            panel.ask("call", source="typed", input="{}")
        assert panel.status == 200
        assert "too often" in panel.ask("call")
        assert panel.status == 429
        assert len(provider.app.calls) == 10


class TestPermissions:
    def sign_in(self, client: Client, *permissions: str) -> None:
        user = User.objects.create_user("eve", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client.force_login(user)

    def test_strangers_are_asked_to_sign_in_and_viewers_may_not(self, client: Client, editor: Client) -> None:
        panel = open_panel(editor)
        client.logout()
        panel.ask()
        assert panel.status == 302
        self.sign_in(client, "view_flow")
        panel.ask()
        assert panel.status == 403

    def test_whoever_may_not_see_runs_types_values(self, client: Client, editor: Client) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1, output={"text": "secret"}), make_attempt(2))
        panel.step = "steps-1"
        self.sign_in(client, "view_flow", "change_flow")
        text = panel.ask()
        assert "Your account may not see runs." in text and "secret" not in text
        run = Run.objects.get().pk
        for action in ("preview", "judge"):
            text = panel.ask(action, source="run", run=run, judged=1)
            assert "it lacks “runs.view_run”" in text and "secret" not in text

    def test_whoever_may_not_start_runs_makes_no_call(
        self, client: Client, editor: Client, provider: ModelServer
    ) -> None:
        panel = open_panel(editor)
        self.sign_in(client, "view_flow", "change_flow", "view_run")
        assert "Your account may not call the model: it lacks “runs.add_run”." in panel.ask()
        panel.ask("call", source="typed", input="{}")
        assert panel.status == 403
        assert provider.app.calls == []


class TestPostsMadeByHand:
    @pytest.mark.parametrize(
        ("fields", "status"),
        [
            ({}, 400),
            ({"try_action": "drop"}, 400),
            ({"try_action": "open"}, 404),
            ({"try_action": "open", "try_step": "steps-0"}, 404),
            ({"try_action": "open", "flow": "99999"}, 404),
            ({"try_action": "open", "flow": "1 OR 1"}, 404),
            ({"try_action": "call", "flow": "9" * 40, "try_step": "steps-0"}, 404),
            ({"try_action": "open", "try_step": "steps-0", "steps-TOTAL_FORMS": "-1"}, 404),
        ],
    )
    def test_get_a_sentence(self, editor: Client, fields: dict[str, str], status: int) -> None:
        response = editor.post(URL, fields)
        assert response.status_code == status
        assert "data-try-refused" in response.content.decode()

    def test_with_nonsense_in_the_panel_get_a_page(self, editor: Client) -> None:
        panel = open_with_run(editor, TWO_STEPS, make_attempt(1), step="steps-1")
        nonsense = {"after": "-1", "judged": "x" * 99, "output_x": "1", "output_999999999": "{}", "input": "\0"}
        for action in ("open", "preview", "judge", "call"):
            panel.ask(action, source="typed", **nonsense)
            assert panel.status == 200
        panel.page.fields["steps-1-output_schema"] = '{"type": 5}'
        panel.page.fields["input_schema"] = '{"type": 5}'
        panel.page.fields["steps-0-output_schema"] = '{"properties": 3, "type": "object"}'
        for action in ("open", "preview", "judge", "call"):
            panel.ask(action, source="typed", input="{}", output_1="{}", pasted="{}", judged="pasted")
            assert panel.status == 200, action

    def test_are_not_read_from_an_address(self, editor: Client) -> None:
        assert editor.get(URL).status_code == 405


def test_asks_the_database_no_more_for_a_long_history(editor: Client, django_assert_num_queries: Any) -> None:
    panel = open_with_run(editor, make_flow(make_step(1), make_step(2)), make_attempt(1, 1, "failed"))
    run = Run.objects.get()
    for count in (1, 6):
        for number in range(2, count + 1):
            store_attempt(run, make_attempt(1, number, "failed"))
            make_run(run.version)
        with django_assert_num_queries(10):
            panel.ask()
        with django_assert_num_queries(9):
            panel.ask("preview", source="run", run=run.pk)
        with django_assert_num_queries(9):
            panel.ask("judge", judged=1)
        panel.choices.clear()
