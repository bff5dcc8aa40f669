"""What the variables of an expression held in an earlier run, as the editor's page asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from runs.models import Run
from runs.try_out import trial as trials
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_stored_run

pytestmark = pytest.mark.django_db

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
    """A run of three steps; by default the first one needed a second attempt, and the third was not reached."""
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


def test_a_value_is_a_tree_of_paths(editor: Client) -> None:
    variables = read_variables(editor, store_run())
    assert variables["output"] == ["output: {booked}", "output.booked: false"]
    assert variables["input"] == ["input: {document}", 'input.document: "INVOICE"']
    assert {
        "steps: 2 elements",
        "steps[0]: the input",
        'steps[0].output.document: "INVOICE"',
        "steps[1]: “Extract”, passed",
        "steps[1].output.total: 131.5",
        "steps[1].output.lines[0].amount: 120.0",
        'steps[1].issues[0].code: "cheap"',
        "steps[1].passed: true",
    } <= set(variables["steps"])


@pytest.mark.parametrize(
    ("variable", "field", "step", "expected"),
    [
        ("previous", "compute", 2, "previous: {total, lines}"),
        ("previous", "compute", 1, "previous: {document}"),
        ("previous", "compute", 3, "previous: {booked}"),
        ("value", "output_sanitizer", 1, "value: {sum}"),
        ("value", "output_sanitizer", 2, "value: {booked}"),
        ("value", "input_sanitizer", 3, "Run {run} did not reach this step."),
        ("issues", "pass_expression", 1, "issues: 1 element"),
        ("issues", "pass_expression", 3, "Run {run} did not reach this step."),
        ("output", "rule", 3, "Run {run} did not reach this step."),
    ],
)
def test_a_variable_holds_what_it_held_in_the_run(
    editor: Client, variable: str, field: str, step: int, expected: str
) -> None:
    run = store_run()
    first = read_variables(editor, run, field=field, step=step)[variable][0]
    assert first == expected.replace("{run}", str(run.pk))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("output.lines.filter(l, l.amount < 20.0)", ["The first of the rule’s list.", "item: {text, amount}"]),
        ("output.lines.filter(l, l.amount < 0.0)", ["Here the rule gives an empty list."]),
        ("output.total > 1.0", ["Here the rule gives no list."]),
        ("steps.map(s, s.name)", ["The first of the rule’s list.", 'item: "Initial input"']),
        ("output.nothing", ["The rule can’t be evaluated over this output."]),
        ("output.", ["The rule can’t be evaluated over this output."]),
        ("python:contrast", ["null if the rule gives false."]),
        ("", ["null if the rule gives false."]),
    ],
)
def test_item_is_the_first_that_the_rule_of_the_page_finds(editor: Client, rule: str, expected: list[str]) -> None:
    lines = read_variables(editor, store_run(), field="message", step=1, rule=rule)["item"]
    assert all(line.endswith(end) for line, end in zip(lines, expected, strict=False))


def test_a_rule_that_takes_too_long_is_stopped(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MAX_TRY_SECONDS", 0)
    numbers = "lists.range(10000)"
    rule = f"{numbers}.filter(a, {numbers}.all(b, {numbers}.all(c, a + b + c + output.lines.size() < 0)))"
    lines = read_variables(editor, store_run(), field="message", step=1, rule=rule)["item"]
    assert lines[0].endswith("The rule can’t be evaluated over this output.")


def test_a_huge_output_is_cut(editor: Client) -> None:
    entry = {f"key {number}": "x" * 5_000 for number in range(200)}
    output = {"texts": ["ü" * 1_000] * 2_000, "deep": entry, **{f"part_{number}": entry for number in range(10)}}
    attempt = make_attempt(1, 1, output=output)
    answer = post(editor, store_run(attempt, make_attempt(2, 1, output=output)), step=2)
    assert len(answer.content) < 100_000
    (tree,) = [one["tree"] for one in answer.json()["variables"] if one["name"] == "output"]
    texts = tree["parts"][0]
    assert (texts["preview"], len(texts["parts"]), texts["more"]) == ("2,000 elements", 5, 1_995)
    assert texts["parts"][0]["preview"].endswith("…")
    assert tree["parts"][1]["parts"][0]["segment"] == '["key 0"]'


def test_a_flow_without_runs_has_a_note(editor: Client) -> None:
    version = make_version(make_spec())
    question = {"flow": version.flow_id, "step": 1, "names": NAMES, "field": "rule"}
    answer = editor.post(URL, json.dumps(question), content_type="application/json").json()
    assert (bool(answer["note"]), answer["runs"]) == (True, [])


def test_queries_do_not_grow_with_runs_and_steps(
    editor: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    runs = [store_run() for _ in range(4)]
    for field, step in (("rule", 3), ("message", 1)):
        with django_assert_num_queries(8):
            read(editor, runs[0], field=field, step=step)


def test_a_question_that_is_not_valid_is_refused(editor: Client) -> None:
    run = store_run()
    for name, values in {
        "flow": [None, "1", 2**70],
        "step": [0, 4, True],
        "names": ["Extract", [1, 2], ["x"] * 51, None],
        "field": ["name", None],
        "run": ["7", -1],
        "rule": [7],
    }.items():
        for value in values:
            answer = post(editor, run, **{name: value})
            assert (answer.status_code, bool(answer.json()["error"])) == (400, True), (name, value)
    assert post(editor, run, names=["\ud800", "\0", "x" * 10_000], step=3).status_code == 200


def test_requests_are_limited(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.throttle.count_request", lambda *args, **limits: 30)
    assert post(editor, store_run()).status_code == 429


@pytest.mark.parametrize(
    ("permissions", "status", "has_runs"),
    [
        (["view_run"], 403, None),
        (["view_flow"], 200, False),
        (["change_flow"], 200, False),
        (["view_flow", "view_run"], 200, True),
    ],
)
def test_values_are_for_those_who_may_see_flows_and_runs(
    client: Client, permissions: list[str], status: int, has_runs: bool | None
) -> None:
    run = store_run()
    user = User.objects.create_user("grace", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    answer = post(client, run)
    assert answer.status_code == status
    if has_runs is not None:
        assert bool(answer.json()["runs"]) == has_runs
        assert ("runs.view_run" in answer.json()["note"]) != has_runs


def test_the_latest_run_that_reached_the_step_is_shown_first_and_another_can_be_chosen(editor: Client) -> None:
    runs = [store_run(make_attempt(1, 1, output={"run": number})) for number in range(11)]
    late = make_run(runs[0].version)
    answer = read(editor, late, step=1)
    assert answer["run"] == runs[-1].pk
    assert [run["id"] for run in answer["runs"]] == [late.pk, *(run.pk for run in runs[:1:-1])]
    assert answer["runs"][1]["words"].startswith(f"Run {runs[-1].pk}, succeeded, ")
    assert read(editor, late, step=1, run=runs[3].pk)["run"] == runs[3].pk
    other = make_stored_run(make_attempt(1, 1), spec=make_page_flow(name="other"))
    for number in (runs[0].pk, other.pk):
        assert read(editor, late, step=1, run=number)["run"] == runs[-1].pk
