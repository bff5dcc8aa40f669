"""Evaluates one expression in a process of its own, which can be killed: ``cel`` itself can't be interrupted.

Run as a module, it reads a request from its standard input and writes the answer to its standard output, both JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.engine.cel_evaluation import Scope, select_variables
from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.expressions import ITEM_VARIABLES, CompiledExpression, parse_expression

TIMEOUT = 2.0
"""Seconds that an expression may compute in a process of its own."""
START_TIMEOUT = 30.0
"""Seconds more for the process to start and to be given the processor: an overloaded machine takes long."""
MAX_PROCESSES = 2
"""At one time: more would only take the processor from each other, and from the runs beside them."""
MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_RESULT_BYTES = 10 * 1024 * 1024

_ROOT = Path(__file__).resolve().parents[2]
_SLOT_INTERVAL = 0.02

# Of the whole process, whichever event loops and threads it has.
_slots = threading.BoundedSemaphore(MAX_PROCESSES)


async def evaluate_in_process(
    expression: CompiledExpression,
    variables: Mapping[str, Any],
    *,
    items: Sequence[Any] | None = None,
    timeout: float = TIMEOUT,
) -> Any:
    """Evaluate an expression over JSON values, with at most ``timeout`` seconds of computing.

    With ``items`` it is a rule, and asked of each of them: see ``Scope.ask_each``. The process is killed if the caller
    is cancelled. Raises ``ExpressionTimeout`` if it takes longer, ``ExpressionError`` if it fails or takes too much
    memory.
    """
    extra = {} if items is None else dict.fromkeys(ITEM_VARIABLES)
    named = select_variables(expression, {**variables, **extra})
    asked = {"text": expression.text, "variables": named, "items": items, "seconds": timeout}
    request = json.dumps(asked).encode()
    while not _slots.acquire(blocking=False):  # noqa: ASYNC110  # no event can be shared by several event loops
        await asyncio.sleep(_SLOT_INTERVAL)
    try:
        status, output = await _run(request, timeout)
    except TimeoutError:
        raise ExpressionTimeout("The expression was not evaluated in time: the machine is overloaded.") from None
    finally:
        _slots.release()
    if status == -signal.SIGPROF:
        raise ExpressionTimeout(
            f"The expression was stopped: it took longer than {timeout:g} s. "
            "Loops inside each other (all, exists, filter, map) over long lists are the most frequent cause."
        )
    if status != 0:
        raise ExpressionError(
            "The expression was stopped: it takes too much memory. It makes lists or texts that grow with every step."
        )
    answer = json.loads(output)
    if "error" in answer:
        raise ExpressionError(answer["error"])
    return answer["result"]


async def _run(request: bytes, timeout: float) -> tuple[int, bytes]:
    """The exit status and the output of a process that was sent ``request``; it never outlives this call."""
    command, environment = describe_process("flows.engine.expression_process")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        # The process counts its own time; this is for a machine on which not even that works.
        async with asyncio.timeout(timeout + START_TIMEOUT):
            output, _ = await process.communicate(request)
    finally:
        if process.returncode is None:
            process.kill()
        status = await process.wait()
    return status, output


def describe_process(module: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a process that runs a ``module`` with the same packages as this one."""
    path = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    return [sys.executable, "-m", module], {**os.environ, "PYTHONPATH": path}


def limit_memory() -> None:
    """Let this process have at most ``MAX_MEMORY_BYTES``."""
    # POSIX only, and the engine must be importable elsewhere.
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def _serve() -> None:
    limit_memory()
    request = json.load(sys.stdin)
    # Ends this process also where the parent has died and nothing else would.
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    variables = request["variables"]
    try:
        expression = parse_expression(request["text"], variables=frozenset(variables))
        scope, items = Scope(variables), request["items"]
        if items is None:
            answer = {"result": scope.evaluate(expression, is_limited=False)}
        else:
            answer = {"result": scope.ask_each(expression, items, is_limited=False)}
    except ExpressionError as error:
        answer = {"error": str(error)}
    text = json.dumps(answer)
    if len(text) > MAX_RESULT_BYTES:
        text = json.dumps({"error": f"The result is larger than {MAX_RESULT_BYTES // 1024 // 1024} MB."})
    sys.stdout.write(text)


if __name__ == "__main__":
    _serve()
