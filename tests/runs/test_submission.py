"""Starting runs from Python: one, or many that start together or not at all, with the options that users type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django_q.models import OrmQ

from flows.engine.errors import InputError
from runs import submission
from runs.models import Priority, Run, RunFacet
from runs.run_options import parse_options
from runs.submission import NotRunnableError, OrdersError, RunOrder, find_own_limits, submit_run, submit_runs
from tests.engine.builders import closed, make_flow
from tests.runs.builders import make_version

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"labels": ["a,b"]}, "comma"),
        ({"metadata": ["x"]}, "JSON object"),
        ({"metadata": {"x": "y" * 16_400}}, "16,384 bytes"),
        ({"metadata": {"x": float("nan")}}, "/x: NaN"),
        ({"webhook_url": "ftp://example.com/"}, "must begin with"),
        ({"webhook_url": "http://example.com/"}, "TOOLFLOW_WEBHOOK_ALLOW"),
        ({"webhook_url": "https://127.0.0.1/"}, "TOOLFLOW_WEBHOOK_ALLOW"),
    ],
)
def test_options_that_are_not_valid_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        submit_run(flow=make_version().flow, input={}, **options)
    assert not Run.objects.exists()


class TestManyRuns:
    def test_all_that_is_wrong_is_reported_at_once_and_none_is_queued(self) -> None:
        orders = [
            RunOrder({"topic": "tea"}),
            RunOrder({"topic": 7, "more": 1}),
            RunOrder({"topic": "tea"}, ["fine", " "]),
            RunOrder("tea"),
            RunOrder({"topic": "tea"}, metadata={"x": "y" * 20_000}),
        ]
        flow = make_version(make_flow(input_schema=closed(topic={"type": "string"}))).flow
        with pytest.raises(InputError) as misfit:
            submit_run(flow=flow, input=orders[1].input)
        assert {problem.path for problem in misfit.value.problems} == {"/topic", "/more"}
        with pytest.raises(OrdersError) as refusal:
            submit_runs(flow=flow, orders=orders)
        paths = {problem.path for problem in refusal.value.problems}
        assert paths == {"/1/input/topic", "/1/input/more", "/2/labels/1", "/3/input", "/4/metadata"}
        assert not Run.objects.exists() and not OrmQ.objects.exists()

    def test_if_one_can_not_be_stored_none_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise RuntimeError("The broker is away.")

        monkeypatch.setattr(submission, "wake_worker", fail)
        with pytest.raises(RuntimeError):
            submit_runs(flow=make_version().flow, orders=[RunOrder({}, ["a"]), RunOrder({})])
        assert not Run.objects.exists() and not RunFacet.objects.exists()


def test_an_archived_flow_is_not_run() -> None:
    flow = make_version().flow
    flow.is_archived = True
    with pytest.raises(NotRunnableError, match="archive"):
        submit_run(flow=flow, input={})


def test_limits_of_a_run_are_distinguished_from_those_of_its_version() -> None:
    version = make_version(make_flow(token_budget=1_000, time_limit=60))
    for limits in ({}, {"token_budget": 500, "cost_budget": Decimal("0.50")}):
        run = submit_run(flow=version.flow, input={}, **limits)
        assert find_own_limits(Run.objects.get(pk=run.pk), version.flow_spec) == limits


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("priority", "", Priority.NORMAL),
        ("priority", "high", Priority.HIGH),
        ("token_budget", "", None),
        ("token_budget", " 20,000 ", 20_000),
        ("token_budget", "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567", 1_234_567),
        ("cost_budget", "$ 12", Decimal(12)),
        ("cost_budget", "0.0001", Decimal("0.0001")),
        ("time_limit", "600", 600),
        ("labels", " b,a , b\t c,, a", ("b", "a", "b c")),
        ("labels", ",".join("0123456789"), tuple("0123456789")),
    ],
)
def test_what_users_type_is_read(option: str, text: str, value: Any) -> None:
    assert parse_options({option: text}) == ({option: value}, {})


@pytest.mark.parametrize(
    ("option", "texts"),
    [
        ("priority", ["urgent"]),
        ("token_budget", ["0", "-5", "20,00", "1e5", "many", "1000000000000001", "٣"]),
        ("cost_budget", ["0", "0,50", "-1", "NaN", "0.00001", "1000000.01", "0.123456789"]),
        ("time_limit", ["10 min"]),
        ("labels", [",".join("0123456789a"), "x" * 51, "fine, bulk-7", "a\x00b", "a\u202eb", "a\ud83d"]),
    ],
)
def test_what_can_not_be_read_gets_a_problem_at_its_option(option: str, texts: list[str]) -> None:
    for text in texts:
        values, problems = parse_options({option: text})
        assert values == {} and list(problems) == [option] and problems[option].isprintable(), text
