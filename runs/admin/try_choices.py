"""What somebody chose and typed in the panel that tries a step, and what stands there to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.engine.history import Attempt, History
from flows.engine.json_values import dump_json
from flows.engine.simulated_model import invent_value
from flows.engine.spec import FlowSpec
from runs.models import Run
from runs.pages.input_fields import default_input, example_input
from runs.pages.json_lines import show_invisible
from runs.try_out.verdict import find_output

RUN, TYPED, PASTED = "run", "typed", "pasted"

_OUTPUT = "try_output_"


@dataclass
class Choices:
    """The panel's own fields. ``source`` is empty as long as nobody has chosen anything."""

    source: str = ""
    run: str = ""
    number: str = ""
    """Of a run that was typed; it goes before ``run``, which was chosen from the list."""
    told_of: int = 0
    input: str = ""
    outputs: dict[int, str] = field(default_factory=dict)
    """Texts by step."""
    judged: str = ""
    """``pasted``, or the number of a stored attempt."""
    pasted: str = ""

    @classmethod
    def from_post(cls, post: Mapping[str, Any]) -> Choices:
        """What was posted; anything that no page of ours sends counts as nothing."""

        def read(name: str) -> str:
            return str(post.get(name, "")).replace("\r\n", "\n")

        source = read("try_source")
        outputs = {name.removeprefix(_OUTPUT): read(name) for name in post if name.startswith(_OUTPUT)}
        return cls(
            source=source if source in {RUN, TYPED} else "",
            run=read("try_run"),
            number=read("try_number"),
            told_of=_read_number(read("try_after")),
            input=read("try_input"),
            outputs={_read_number(position): text for position, text in outputs.items()},
            judged=read("try_judged"),
            pasted=read("try_pasted"),
        )

    @property
    def run_number(self) -> str:
        """The number of the run to work on, as it was typed or chosen."""
        return self.number if self.number.strip() else self.run

    @property
    def judged_number(self) -> int:
        """The number of the stored attempt whose output is to be judged; 0 for a pasted one."""
        return _read_number(self.judged)

    def choose_stored(self, attempts: Sequence[Attempt]) -> None:
        """Have the latest output of these attempts judged, if there is one; else one that is pasted."""
        numbers = [attempt.number for attempt in attempts if find_output(attempt) is not None]
        self.judged = str(numbers[-1]) if numbers else PASTED

    def fill_in(self, spec: FlowSpec, index: int, history: History | None, *, may_invent: bool) -> None:
        """Put values where somebody would type them: those of an earlier run, else examples that fit the schemas.

        ``may_invent`` says that the schemas are sound.
        """
        self.input = _write(history.initial_input if history else _suggest_input(spec, may_invent=may_invent))
        for position in range(1, index):
            final = history.final(position) if history else None
            output = final.usable_output if final else None
            schema = spec.step(position).output_schema
            if output is None and may_invent and schema is not None:
                output = invent_value(schema, seed=spec.step(position).name)
            self.outputs[position] = "" if output is None else _write(output)


def choose_run(runs: list[Any], index: int) -> Run | None:
    """The run to begin with: the latest that got to the step, for the first step just the latest."""
    reached: Run | None = next((run for run in runs if run.has_step), None)
    return reached or (runs[0] if runs and index == 1 else None)


def _suggest_input(spec: FlowSpec, *, may_invent: bool) -> Any:
    example = example_input(spec.input_schema)
    if example is None and may_invent and spec.input_schema is not None:
        example = invent_value(spec.input_schema, seed=spec.name)
    return example or default_input(spec.input_schema)


def _write(value: Any) -> str:
    return show_invisible(dump_json(value, indent=2))


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
