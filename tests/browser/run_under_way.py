"""A run that goes on while a page shows it: the planner says what comes next, the recorder stores it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from playwright.sync_api import Page, Response

from flows.engine.execution import Progress, Start
from flows.engine.history import Attempt, Outcome
from flows.engine.planner import Call, Compute, Finish, next_action
from flows.engine.prompt import build_request
from flows.engine.spec import StepSpec
from runs.recorder import RunRecorder
from runs.stored_history import load_history
from tests.engine.builders import make_attempt
from tests.runs.builders import claim_run, make_run, make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import run_address


class RunUnderWay:
    """A claimed run whose first attempt has begun, of ``make_page_flow`` with these steps."""

    def __init__(self, *steps: StepSpec) -> None:
        self._spec = make_page_flow(*steps)
        self.run = claim_run(make_run(make_version(self._spec)))
        self._history = load_history(self.run)
        self._recorder = RunRecorder(self.run, self._spec, self._history)
        self._running: Start | None = self._begin(Call(1, 1))
        self._recorder.record(Progress(begun=self._running))

    @property
    def address(self) -> str:
        """Where its page is."""
        return run_address(self.run)

    def end_attempt(self, outcome: Outcome | str = "passed", **fields: Any) -> None:
        """End the attempt under way and begin what the planner says, or end the run; nothing if it says to wait."""
        assert self._running is not None, "No attempt is under way."
        ended = self._end(self._running, outcome, fields)
        self._history = self._history.append(ended)
        action = next_action(self._spec, self._history)
        self._running = self._begin(action) if isinstance(action, Call | Compute) else None
        finish = action if isinstance(action, Finish) else None
        self._recorder.record(Progress(ended=ended, begun=self._running, finish=finish))

    def begin_attempt(self) -> None:
        """Begin the attempt that the planner wanted to wait for."""
        last = self._history.steps[-1][-1]
        self._running = self._begin(Call(last.step, last.number + 1))
        self._recorder.record(Progress(begun=self._running))

    def _begin(self, action: Call | Compute) -> Start:
        step = self._spec.step(action.step)
        input = {"topic": "tea"}
        request = None if step.is_local else build_request(self._spec, self._history, action.step, input)
        return Start(action.step, action.number, input, request, datetime.now(UTC))

    def _end(self, start: Start, outcome: Outcome | str, fields: dict[str, Any]) -> Attempt:
        times = {"started_at": start.started_at, "ended_at": datetime.now(UTC)}
        return make_attempt(start.step, start.number, outcome, **{**times, **fields})


def follow(page: Page, address: str) -> None:
    """Open the page of a run with a clock that a test can put forward."""
    page.clock.install()
    page.goto(address)


def wait_for_poll(page: Page) -> Response:
    """Let the page ask for what is new, now; gives the answer."""
    with page.expect_response("**/live?*") as answer:
        page.clock.run_for(1_000)
    return answer.value
