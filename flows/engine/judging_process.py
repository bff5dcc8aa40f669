"""Judges many outputs of one step in a process that can be killed, and that stays for the next request.

To start a process takes longer than to judge what twenty attempts brought. Run as a module, it reads requests from its
standard input, a line each, and writes a line for each output as soon as it is judged, all JSON.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flows.engine.expression_process import describe_process, limit_memory
from flows.engine.history import Issue, Outcome
from flows.engine.judging import Judgement, judge_output
from flows.engine.plugins import Registry
from flows.engine.spec import StepSpec
from flows.engine.time_limits import TimeBudget

MAX_SECONDS = 2.0
"""Seconds that all outputs of one request may take together, of computing."""
MAX_WAIT = 10.0
"""Seconds more for a process to start and to be given the processor."""
MAX_PROCESSES = 2
"""At one time, of this process: more would only take the processor from each other, and from the runs beside them."""
SLOT_TIMEOUT = 1.0
"""Seconds that a request waits for one of them to be free."""
MAX_IDLE = 120.0
"""Seconds without a request after which a process ends."""

_Process = subprocess.Popen[str]

_slots = threading.BoundedSemaphore(MAX_PROCESSES)
_idle: list[_Process] = []
"""Those that wait for a request. Threads take from its end and put there, which is one operation each."""


class BusyError(Exception):
    """Too many requests are being answered; asked again in a moment, this one may be."""


@dataclass(frozen=True, slots=True)
class Case:
    """An output to be judged, and the ``variables`` that its step has (``step_variables``); all are clean JSON."""

    output: dict[str, Any]
    variables: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JudgedCases:
    """The judgements of the first cases, in their order, and why there are none of the others, in a sentence."""

    judgements: tuple[Judgement, ...]
    obstacle: str = ""


def judge_in_process(
    step: StepSpec, cases: Sequence[Case], *, seconds: float = MAX_SECONDS, timeout: float = SLOT_TIMEOUT
) -> JudgedCases:
    """Judge cases as attempts of ``step``, with at most ``seconds`` of computing. Blocks its thread meanwhile.

    The step must not be judged in Python: the process knows no plug-ins. Raises ``BusyError`` if no process is free
    within ``timeout`` seconds.
    """
    named = [{"output": case.output, "variables": dict(case.variables)} for case in cases]
    definition = step.model_dump(mode="json", exclude_defaults=True)
    request = json.dumps({"step": definition, "cases": named, "seconds": seconds})
    if not _slots.acquire(timeout=timeout):
        raise BusyError
    try:
        while True:
            is_new = not _idle
            process = _start() if is_new else _idle.pop()
            lines = _exchange(process, request, len(cases), seconds)
            if len(lines) == len(cases):
                _idle.append(process)
                return JudgedCases(tuple(map(_read, lines)))
            status = _end(process)
            # One that had waited may have ended before it was asked.
            if is_new or lines or status == -signal.SIGPROF:
                return JudgedCases(tuple(map(_read, lines)), _explain_end(status, seconds))
    finally:
        _slots.release()


def close_processes() -> None:
    """End the processes that wait for a request."""
    while _idle:
        _end(_idle.pop())


atexit.register(close_processes)


def _start() -> _Process:
    command, environment = describe_process("flows.engine.judging_process")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment, encoding="utf-8", **pipes)  # type: ignore[call-overload,no-any-return]


def _exchange(process: _Process, request: str, count: int, seconds: float) -> list[str]:
    """The whole lines that the process answers with, fewer than ``count`` if it ended."""
    assert process.stdin is not None and process.stdout is not None
    lines: list[str] = []
    # The process counts its own time; this is for a machine on which not even that works.
    timer = threading.Timer(seconds + MAX_WAIT, process.kill)
    timer.start()
    try:
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        while len(lines) < count and (line := process.stdout.readline()).endswith("\n"):
            lines.append(line)
    except BrokenPipeError:
        pass
    finally:
        timer.cancel()
    return lines


def _end(process: _Process) -> int:
    """The exit status of a process that is not needed any more, killed if it goes on."""
    status = process.poll()
    if status is None:
        # It may be about to end by itself, as a pipe is closed before the process is gone.
        try:
            status = process.wait(0.2)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()
    return status


def _explain_end(status: int, seconds: float) -> str:
    if status == -signal.SIGPROF:
        return f"The rules were stopped: together they took longer than {seconds:g} s."
    if status == -signal.SIGKILL:
        return "The outputs were not judged in time: the machine is overloaded."
    return "The rules were stopped: they take too much memory."


def _read(line: str) -> Judgement:
    answer = json.loads(line)
    return Judgement(
        outcome=Outcome(answer["outcome"]),
        output=answer["output"],
        raw_output=answer["raw_output"],
        issues=tuple(map(Issue.model_validate, answer["issues"])),
        failure_reason=answer["failure_reason"],
    )


# ---------------------------------------------------------------------------------------------------------------
# The process itself


def _serve() -> None:
    limit_memory()
    # Unbuffered: what waits in a buffer is not seen by `select`.
    source = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115  # until the process ends
    while select.select([source], [], [], MAX_IDLE)[0]:
        parts = []
        while chunk := source.read(1 << 20):
            parts.append(chunk)
            if chunk.endswith(b"\n"):
                break
        else:
            return
        _answer(json.loads(b"".join(parts)))


def _answer(request: dict[str, Any]) -> None:
    # Ends this process also where the parent has died and nothing else would.
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    asyncio.run(_judge_all(request))
    signal.setitimer(signal.ITIMER_PROF, 0)


async def _judge_all(request: dict[str, Any]) -> None:
    step, registry = StepSpec.model_validate(request["step"]), Registry()
    for case in request["cases"]:
        judgement = await judge_output(step, case["output"], case["variables"], registry, TimeBudget(is_killable=True))
        answer = {
            "outcome": judgement.outcome.value,
            "output": judgement.output,
            "raw_output": judgement.raw_output,
            "issues": [issue.model_dump(mode="json") for issue in judgement.issues],
            "failure_reason": judgement.failure_reason,
        }
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
