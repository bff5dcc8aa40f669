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
from tests.runs.builders import make_run, make_version

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

    def test_an_input_that_does_not_fit_is_told_by_its_place_in_the_input(self) -> None:
        with pytest.raises(InputError) as refusal:
            submit_run(flow=make_topic_version().flow, input={"topic": 7})
        assert [problem.path for problem in refusal.value.problems] == ["/topic"]
        assert not Run.objects.exists()

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"labels": ["a,b"]}, "The label “a,b” has a comma in it; commas stand between labels."),
            ({"metadata": ["x"]}, "Metadata must be a JSON object, got a list."),
            ({"metadata": {"x": "y" * 16_400}}, "Metadata may have 16,384 bytes as JSON; this has 16,408."),
            ({"metadata": {"x": float("nan")}}, "/x: NaN"),
            ({"webhook_url": "ftp://example.com/"}, "The address must begin with https:// or http://"),
            ({"webhook_url": "https:///nowhere"}, "The address names no host"),
            ({"webhook_url": "http://example.com/"}, "Plain http:// is only for hosts and networks that TOOLFLOW"),
            ({"webhook_url": "https://127.0.0.1/"}, "“127.0.0.1” leads to an address that is not one of the internet"),
            ({"webhook_url": "https://example.com:99999/"}, "This is no address (Port out of range 0-65535)"),
            ({"webhook_url": "https://ada:secret@example.com/"}, "The address must not hold a user name or a password"),
            ({"webhook_url": "https://example.com/" + "x" * 2_000}, "The address is longer than 2,000 bytes."),
        ],
    )
    def test_what_can_not_be_is_refused_in_a_sentence(self, options: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError) as refusal:  # noqa: PT011  # what it says is asked below
            submit_run(flow=make_version().flow, input={}, **options)
        assert sentence in str(refusal.value)
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
        with pytest.raises(OrdersError) as refusal:
            submit_runs(flow=make_topic_version().flow, orders=orders)
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

    def test_no_orders_start_nothing_and_wake_nobody(self) -> None:
        assert submit_runs(flow=make_version().flow, orders=[]) == []
        assert not OrmQ.objects.exists()

    def test_a_flow_that_can_not_be_run_says_so(self) -> None:
        flow = make_version().flow
        flow.is_archived = True
        flow.save()
        with pytest.raises(NotRunnableError, match="archive"):
            submit_runs(flow=flow, orders=[RunOrder({})])


def test_limits_that_a_run_has_of_its_own_are_told_from_those_of_its_version() -> None:
    version = make_version(make_flow(token_budget=1_000, time_limit=60))
    inherited = submit_run(flow=version.flow, input={})
    own = submit_run(flow=version.flow, input={}, token_budget=500, cost_budget=Decimal("0.50"))
    assert find_own_limits(Run.objects.get(pk=inherited.pk), version.flow_spec) == {}
    assert find_own_limits(Run.objects.get(pk=own.pk), version.flow_spec) == {
        "token_budget": 500,
        "cost_budget": Decimal("0.50"),
    }
    assert make_run(version).token_budget is None
