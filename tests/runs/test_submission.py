"""Starting runs from Python: one, or many that start together or not at all."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django_q.models import OrmQ

from flows.engine.errors import InputError
from runs import submission
from runs.models import Priority, Run, RunFacet, RunStatus
from runs.submission import NotRunnableError, OrdersError, RunOrder, find_own_limits, submit_run, submit_runs
from tests.engine.builders import closed, make_flow
from tests.runs.builders import make_version

pytestmark = pytest.mark.django_db

TOPIC = closed(topic={"type": "string"})


def make_topic_version() -> Any:
    return make_version(make_flow(input_schema=TOPIC))


class TestOneRun:
    def test_it_is_queued_with_what_it_was_given(self, settings: Any) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["intake:8080"]
        flow = make_version().flow
        started = submit_run(
            flow=flow,
            input={"topic": "tea"},
            labels=["b", "a", "b"],
            metadata={"z": 1, "a": [None, "ü"]},
            webhook_url="http://intake:8080/hooks",
            priority=Priority.HIGH,
            cost_budget=Decimal("0.50"),
        )
        run = Run.objects.get(pk=started.pk)
        assert (run.status, run.input, run.labels) == (RunStatus.QUEUED, {"topic": "tea"}, ["a", "b"])
        assert list(run.metadata.items()) == [("z", 1), ("a", [None, "ü"])]
        assert (run.webhook_url, run.priority, run.cost_budget) == (
            "http://intake:8080/hooks",
            Priority.HIGH,
            Decimal("0.50"),
        )
        assert run.created_at == started.created_at

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"labels": ["a,b"]}, "has a comma in it"),
            ({"metadata": ["x"]}, "must be a JSON object, got a list"),
            ({"metadata": {"x": "y" * 16_400}}, "16,384 bytes as JSON"),
            ({"metadata": {"x": float("nan")}}, "/x: NaN"),
            ({"webhook_url": "ftp://example.com/"}, "The address must begin with"),
            ({"webhook_url": "http://example.com/"}, "TOOLFLOW_WEBHOOK_ALLOW"),
            ({"webhook_url": "https://127.0.0.1/"}, "TOOLFLOW_WEBHOOK_ALLOW"),
        ],
    )
    def test_options_that_are_not_valid_are_refused(self, options: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            submit_run(flow=make_version().flow, input={}, **options)
        assert not Run.objects.exists()


class TestManyRuns:
    def test_they_are_queued_in_their_order_with_their_labels_and_one_message(self) -> None:
        version = make_version()
        orders = [RunOrder({"number": number}, [f"n{number}"], {"row": number}) for number in range(40)]
        runs = submit_runs(flow=version.flow, orders=orders, priority=Priority.LOW)
        numbers = [run.pk for run in runs]
        assert numbers == sorted(set(numbers))
        stored = Run.objects.order_by("pk").values_list("pk", "input", "metadata", "labels", "priority")
        assert list(stored) == [
            (pk, {"number": index}, {"row": index}, [f"n{index}"], Priority.LOW) for index, pk in enumerate(numbers)
        ]
        assert RunFacet.objects.filter(kind="label").count() == 40
        assert OrmQ.objects.count() == 1

    def test_all_that_is_wrong_is_told_at_once_and_none_is_queued(self) -> None:
        orders = [
            RunOrder({"topic": "tea"}),
            RunOrder({"topic": 7, "more": 1}),
            RunOrder({"topic": "tea"}, ["fine", " "]),
            RunOrder("tea"),
            RunOrder({"topic": "tea"}, metadata={"x": "y" * 20_000}),
        ]
        flow = make_topic_version().flow
        with pytest.raises(InputError) as misfit:
            submit_run(flow=flow, input=orders[1].input)
        assert {problem.path for problem in misfit.value.problems} == {"/topic", "/more"}
        with pytest.raises(OrdersError) as refusal:
            submit_runs(flow=flow, orders=orders)
        paths = {problem.path for problem in refusal.value.problems}
        assert paths == {"/1/input/topic", "/1/input/more", "/2/labels/1", "/3/input", "/4/metadata"}
        assert not Run.objects.exists()
        assert not OrmQ.objects.exists()

    def test_if_one_can_not_be_stored_none_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise RuntimeError("The broker is away.")

        monkeypatch.setattr(submission, "wake_worker", fail)
        with pytest.raises(RuntimeError):
            submit_runs(flow=make_version().flow, orders=[RunOrder({}, ["a"]), RunOrder({})])
        assert not Run.objects.exists()
        assert not RunFacet.objects.exists()

    def test_no_orders_start_nothing(self) -> None:
        assert submit_runs(flow=make_version().flow, orders=[]) == []
        assert not OrmQ.objects.exists()

    def test_an_archived_flow_is_not_run(self) -> None:
        flow = make_version().flow
        flow.is_archived = True
        with pytest.raises(NotRunnableError, match="archive"):
            submit_runs(flow=flow, orders=[RunOrder({})])


def test_limits_of_a_run_are_distinguished_from_those_of_its_version() -> None:
    version = make_version(make_flow(token_budget=1_000, time_limit=60))
    own = {"token_budget": 500, "cost_budget": Decimal("0.50")}
    for limits in ({}, own):
        run = submit_run(flow=version.flow, input={}, **limits)
        assert find_own_limits(Run.objects.get(pk=run.pk), version.flow_spec) == limits
