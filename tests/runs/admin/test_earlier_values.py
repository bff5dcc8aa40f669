"""What the variables of an expression held in an earlier run, as the editor's page asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db.models import QuerySet
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from flows.models import FlowVersion
from runs.admin import earlier_values
from runs.models import Run, RunStatus
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_stored_run

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

URL = "/admin/flows/flow/values/"
NAMES = ["Extract", "Book", "Report"]
OUTPUT = {"total": 131.5, "lines": [{"text": "Paper", "amount": 120.0}, {"text": "Freight", "amount": 11.5}]}
FINDING = make_issue("medium", "Too cheap.", code="cheap", path="/total")


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


def make_spec() -> Any:
    steps = [make_step(number, name=name) for number, name in enumerate(NAMES, start=1)]
    return make_page_flow(*steps)


def store_run(*attempts: Any, **fields: Any) -> Run:
    """A run of three steps; by default the first one needed a second attempt, and the third was not come to."""
    attempts = attempts or (
        make_attempt(1, 1, "failed", output={"total": 0.0, "lines": []}),
        make_attempt(1, 2, output=OUTPUT, raw_output={"sum": 131.5}, issues=(FINDING,)),
        make_attempt(2, 1, "failed", output={"booked": False}),
    )
    run = make_stored_run(*attempts, spec=make_spec(), input={"document": "INVOICE"}, **fields)
    for step in run.steps.all():
        step.name = NAMES[step.index - 1]
        step.save()
    return run


def post(client: Client, run: Run, /, **question: Any) -> Any:
    asked = {"flow": run.flow_id, "step": 2, "names": NAMES, "field": "rule", **question}
    return client.post(URL, json.dumps(asked), content_type="application/json")


def read(client: Client, run: Run, /, **question: Any) -> dict[str, Any]:
    answer = post(client, run, **question)
    assert answer.status_code == 200, answer.content
    return answer.json()


def read_variables(client: Client, run: Run, /, **question: Any) -> dict[str, list[str]]:
    """Each variable's note, if there is one, and its paths with what they hold."""
    return {
        one["name"]: [one["note"]] * bool(one["note"]) + list_paths(one["tree"])
        for one in read(client, run, **question)["variables"]
    }


def list_paths(tree: dict[str, Any] | None, before: str = "") -> list[str]:
    if tree is None:
        return []
    path = before + tree["segment"]
    return [f"{path}: {tree['preview']}", *(line for part in tree.get("parts", []) for line in list_paths(part, path))]


def test_the_variables_of_a_rule_held_the_output_the_input_and_the_steps_before(editor: Client) -> None:
    run = store_run()
    variables = read_variables(editor, run)
    assert variables["output"] == ["output: {booked}", "output.booked: false"]
    assert variables["input"] == ["input: {document}", 'input.document: "INVOICE"']
    assert variables["steps"] == ["steps: 2 elements", "steps[0]: the input", "steps[1]: “Extract”, passed"]


def test_a_value_is_a_tree_of_paths_that_an_expression_can_read(editor: Client) -> None:
    lines = read_variables(editor, store_run(), step=1)["output"]
    assert "output.total: 131.5" in lines
    assert "output.lines[0].amount: 120.0" in lines
    assert 'output.lines[1].text: "Freight"' in lines


def test_an_element_of_steps_is_read_when_it_is_unfolded(editor: Client) -> None:
    run = store_run()
    lines = list_paths(read(editor, run, part=1)["tree"], "steps")
    assert 'steps[1].name: "Extract"' in lines
    assert "steps[1].output.total: 131.5" in lines
    assert 'steps[1].issues[0].code: "cheap"' in lines
    assert "steps[1].passed: true" in lines
    assert 'steps[0].output.document: "INVOICE"' in list_paths(read(editor, run, part=0)["tree"], "steps")


def test_previous_is_the_output_of_the_step_before_or_the_input(editor: Client) -> None:
    run = store_run()
    assert read_variables(editor, run, field="compute")["previous"][0] == "previous: {total, lines}"
    assert read_variables(editor, run, field="compute", step=1)["previous"][0] == "previous: {document}"


def test_a_sanitizer_had_what_came_back_before_it(editor: Client) -> None:
    run = store_run()
    assert read_variables(editor, run, field="output_sanitizer", step=1)["value"][1] == "value.sum: 131.5"
    assert read_variables(editor, run, field="output_sanitizer")["value"][1] == "value.booked: false"


def test_the_input_of_a_step_is_what_its_sanitizer_had(editor: Client) -> None:
    run = store_run(make_attempt(1, 1, input={"document": "INVOICE"}))
    assert read_variables(editor, run, field="input_sanitizer", step=1)["value"][1] == 'value.document: "INVOICE"'
    step = make_step(1, name="Extract", input_sanitizer="value")
    run = make_stored_run(make_attempt(1, 1, input={"document": "INVOICE"}), spec=make_page_flow(step, name="other"))
    (note, *_) = read_variables(editor, run, field="input_sanitizer", step=1)["value"]
    assert note == "As the sanitizer of then left it; what it was given is not kept."


@pytest.mark.parametrize("spec", [{"steps": 7}, {}, 7, [], "text"])
def test_a_run_of_a_version_that_can_t_be_read_shows_what_is_stored(editor: Client, spec: Any) -> None:
    run = store_run(make_attempt(1, 1, input={"document": "INVOICE"}, output=OUTPUT))
    # Versions never change: a later release made this one.
    QuerySet.update(FlowVersion.objects.filter(pk=run.version_id), spec=spec)
    note, *lines = read_variables(editor, run, field="input_sanitizer", step=1)["value"]
    assert note.endswith("the version of this run can’t be read by this ToolFlow.")
    assert 'value.document: "INVOICE"' in lines
    for field in ("rule", "output_sanitizer", "compute", "pass_expression", "message"):
        assert read_variables(editor, run, field=field, step=1)


def test_issues_are_those_of_the_attempt_that_decided(editor: Client) -> None:
    lines = read_variables(editor, store_run(), field="pass_expression", step=1)["issues"]
    assert lines[0] == "issues: 1 element"
    assert 'issues[0].severity: "medium"' in lines


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("output.lines.filter(l, l.amount < 20.0)", ["The first of the rule’s list.", "item: {text, amount}"]),
        ("output.lines.filter(l, l.amount < 0.0)", ["Here the rule gives an empty list."]),
        ("output.total > 1.0", ["Here the rule gives no list."]),
        ("output.nothing", ["The rule could not be evaluated over this output."]),
        ("output.", ["The rule can’t be read yet."]),
        ("python:contrast", ["null if the rule gives false."]),
        ("steps.map(s, s.name)", ["null if the rule gives false."]),
        ("", ["null if the rule gives false."]),
    ],
)
def test_item_is_the_first_that_the_rule_of_the_page_finds(editor: Client, rule: str, expected: list[str]) -> None:
    lines = read_variables(editor, store_run(), field="message", step=1, rule=rule)["item"]
    assert all(line.endswith(end) for line, end in zip(lines, expected, strict=False))


def test_an_explosive_rule_is_stopped(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.admin.run_values.RULE_TIMEOUT", 0.2)
    numbers = "lists.range(10000)"
    rule = f"{numbers}.filter(a, {numbers}.all(b, {numbers}.all(c, a + b + c + output.lines.size() < 0)))"
    lines = read_variables(editor, store_run(), field="message", step=1, rule=rule)["item"]
    assert lines[0].endswith("The rule could not be evaluated over this output.")


def test_the_latest_run_that_came_to_the_step_is_shown_first(editor: Client) -> None:
    early = store_run()
    late = make_run(early.version)
    answer = read(editor, early)
    assert answer["run"] == early.pk
    assert [run["id"] for run in answer["runs"]] == [late.pk, early.pk]
    assert answer["runs"][1]["words"].startswith(f"Run {early.pk}, succeeded, ")


def test_another_run_can_be_chosen_among_the_last_ten(editor: Client) -> None:
    runs = [store_run(make_attempt(1, 1, output={"run": number})) for number in range(12)]
    answer = read(editor, runs[0], step=1, run=runs[3].pk)
    assert len(answer["runs"]) == 10
    assert answer["run"] == runs[3].pk
    refused = post(editor, runs[0], run=runs[1].pk)
    assert refused.status_code == 400
    assert "not among the latest runs" in refused.json()["error"]


def test_a_run_that_did_not_come_to_the_step_says_so(editor: Client) -> None:
    run = store_run()
    assert read_variables(editor, run, step=3)["output"] == [f"Run {run.pk} did not come to this step."]
    assert read_variables(editor, run, step=3, field="compute")["previous"] == [
        "previous: {booked}",
        "previous.booked: false",
    ]


def test_an_output_that_no_step_could_work_with_is_not_shown(editor: Client) -> None:
    run = store_run(make_attempt(1, 1, "invalid", output={"no": "total"}))
    assert read_variables(editor, run, step=1)["output"] == ["No usable output in this run."]


def test_an_attempt_under_way_hides_nothing(editor: Client) -> None:
    run = store_run(make_attempt(1, 1, output=OUTPUT), make_attempt(2, 1, "interrupted"), status=RunStatus.RUNNING)
    begin_attempt(run, 2, 2)
    assert read_variables(editor, run)["output"] == [f"Run {run.pk} did not come to this step."]
    assert read_variables(editor, run, step=1)["output"][0] == "output: {total, lines}"


def test_steps_are_found_by_name_when_they_were_moved_or_renamed_meanwhile(editor: Client) -> None:
    run = store_run()
    moved = read_variables(editor, run, names=["New", "Extract"], step=2)
    assert moved["output"][0] == "output: {total, lines}"
    assert moved["steps"][2:] == ["steps[1]: “New”, not in this run"]
    renamed = read_variables(editor, run, names=["Read", "Book"], step=1)
    assert renamed["output"][0] == "output: {total, lines}"


def test_a_huge_output_is_cut_and_says_so(editor: Client) -> None:
    entry = {f"key {number}": "x" * 5_000 for number in range(200)}
    output = {"texts": ["ü" * 1_000] * 2_000, "deep": entry, **{f"part_{number}": entry for number in range(50)}}
    run = store_run(make_attempt(1, 1, output=output))
    answer = post(editor, run, step=1)
    assert len(answer.content) < 50_000
    (tree,) = [one["tree"] for one in answer.json()["variables"] if one["name"] == "output"]
    texts = tree["parts"][0]
    assert (texts["preview"], len(texts["parts"]), texts["more"]) == ("2,000 elements", 5, 1_995)
    assert texts["parts"][0]["preview"].endswith("…")
    assert tree["parts"][1]["parts"][0]["segment"] == '["key 0"]'


def test_a_flow_that_never_ran_says_so(editor: Client) -> None:
    version = make_version(make_spec())
    answer = editor.post(
        URL,
        json.dumps({"flow": version.flow_id, "step": 1, "names": NAMES, "field": "rule"}),
        content_type="application/json",
    ).json()
    assert answer == {"note": "No run of this flow yet: there are no values to show.", "runs": []}


@pytest.mark.parametrize(("field", "step", "queries"), [("rule", 3, 7), ("compute", 3, 8), ("message", 1, 8)])
def test_the_number_of_queries_does_not_grow_with_runs_and_steps(
    editor: Client, django_assert_num_queries: DjangoAssertNumQueries, field: str, step: int, queries: int
) -> None:
    runs = [store_run() for _ in range(4)]
    with django_assert_num_queries(queries):
        read(editor, runs[0], field=field, step=step)


@pytest.mark.parametrize(
    "question",
    [
        {"flow": None},
        {"flow": "1"},
        {"flow": 2**70},
        {"step": 0},
        {"step": 4},
        {"step": True},
        {"names": "Extract"},
        {"names": [1, 2]},
        {"names": ["x"] * 51},
        {"field": "name"},
        {"field": None},
        {"run": "7"},
        {"run": 0},
        {"part": 2},
        {"part": -1},
        {"rule": 7, "field": "message"},
    ],
)
def test_a_question_that_makes_no_sense_is_answered_with_one_sentence(editor: Client, question: Any) -> None:
    answer = post(editor, store_run(), **question)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


def test_names_that_no_database_could_hold_are_answered(editor: Client) -> None:
    for name in ("\ud800", "\0", "x" * 10_000):
        assert post(editor, store_run(), names=[name] * 3, step=3).status_code == 200


def test_a_run_of_another_flow_is_not_shown(editor: Client) -> None:
    other = make_stored_run(make_attempt(1, 1), spec=make_page_flow(name="other"))
    assert post(editor, store_run(), run=other.pk).status_code == 400


def test_asking_is_limited(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store_run()
    monkeypatch.setattr("flows.throttle._count_request", lambda key, seconds: earlier_values.ASKED_A_MINUTE + 1)
    assert post(editor, run).status_code == 429


@pytest.mark.parametrize(
    ("permissions", "status", "note"),
    [
        ([], 403, None),
        (["view_run"], 403, None),
        (["view_flow"], 200, "You may not see runs: your account lacks “runs.view_run”."),
        (["change_flow"], 200, "You may not see runs: your account lacks “runs.view_run”."),
        (["view_flow", "view_run"], 200, ""),
        (["change_flow", "view_run"], 200, ""),
    ],
)
def test_values_are_for_those_who_may_see_flows_and_runs(
    client: Client, permissions: list[str], status: int, note: str | None
) -> None:
    run = store_run()
    user = User.objects.create_user("grace", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    answer = post(client, run)
    assert answer.status_code == status
    if note is not None:
        assert answer.json()["note"] == note
        assert bool(answer.json()["runs"]) == (note == "")
