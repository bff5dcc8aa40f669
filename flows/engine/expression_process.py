"""Evaluates one expression in a process of its own, which can be killed: ``cel`` itself can't be interrupted.

Run as a module, it reads a request from its standard input and writes the answer to its standard output, both JSON.
A plain subprocess works where a forked one does not: in a thread, under a running event loop, in a worker of a pool
that may have no children.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from flows.engine.errors import ExpressionError, ExpressionTimeout

MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_RESULT_BYTES = 10 * 1024 * 1024

_ROOT = Path(__file__).resolve().parents[2]

START_PATIENCE = 30.0
"""Seconds for a process to be there, and to wait while others compute: that an overloaded machine takes long for both
is not the expression's fault."""
MOST_PROCESSES = 2
"""At one time: more would only take the processor from each other, and from the runs beside them."""

_BEGUN = b"\n"
"""What a process says when it is there."""

_slots = threading.BoundedSemaphore(MOST_PROCESSES)


class ExpressionProcess:
    """One process for one expression; ``kill`` ends it from any thread, also before it has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def kill(self) -> None:
        """End it: nobody waits for its answer any more."""
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()

    def evaluate(self, text: str, variables: Mapping[str, Any], *, timeout: float) -> Any:
        """Evaluate ``text`` over JSON values, with at most ``timeout`` seconds of computing. Blocks until then.

        Raises ``ExpressionTimeout`` if it took longer, ``ExpressionError`` if it failed or took too much memory.
        """
        request = json.dumps({"text": text, "variables": dict(variables), "seconds": timeout})
        with _slots:
            with self._lock:
                if self._is_killed:
                    raise ExpressionTimeout("The expression was stopped before it began.")
                process = self._process = _start()
            with process:
                try:
                    _await_beginning(process)
                    output, _ = process.communicate(request.encode(), timeout=timeout + START_PATIENCE)
                except subprocess.TimeoutExpired:
                    raise _tell_of_end(timeout) from None
                finally:
                    process.kill()
        if process.returncode == -signal.SIGPROF:
            raise _tell_of_end(timeout)
        return _read_answer(process.returncode, output)


def _tell_of_end(timeout: float) -> ExpressionTimeout:
    return ExpressionTimeout(
        f"The expression was stopped: it took longer than {timeout:g} s. "
        "Loops inside each other (all, exists, filter, map) over long lists are the usual reason."
    )


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "flows.engine.expression_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)])},
    )


def _await_beginning(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process is there, or has ended. Raises ``ExpressionTimeout``."""
    assert process.stdout is not None, "It was started with one."
    # Unlike “select”, this takes descriptors of any number: a busy worker has thousands.
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(START_PATIENCE):
            raise ExpressionTimeout(
                f"The expression was not evaluated: no process for it was there within {START_PATIENCE:g} s. "
                "The machine is overloaded, by whatever else is at work on it."
            )
    os.read(process.stdout.fileno(), len(_BEGUN))


def _read_answer(status: int, output: bytes) -> Any:
    if status != 0:
        raise ExpressionError(
            "The expression was stopped: it takes too much memory. It makes lists or texts that grow with every step."
        )
    answer = json.loads(output)
    if "error" in answer:
        raise ExpressionError(answer["error"])
    return answer["result"]


def _serve() -> None:
    # POSIX only, and the engine must be importable elsewhere.
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    # ``cel`` imports its command line, and with it half a second of libraries that nothing here uses.
    sys.modules["cel.cli"] = ModuleType("cel.cli")
    from flows.engine.expressions import Scope, parse_expression

    os.write(sys.stdout.fileno(), _BEGUN)
    request = json.load(sys.stdin)
    # Counts what this process computes, and ends it, also where the parent has died and nobody is left to kill us.
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    variables = request["variables"]
    try:
        expression = parse_expression(request["text"], variables=frozenset(variables))
        answer = {"result": Scope(variables).evaluate_here(expression)}
    except ExpressionError as error:
        answer = {"error": str(error)}
    text = json.dumps(answer)
    if len(text) > MAX_RESULT_BYTES:
        text = json.dumps({"error": f"The result is larger than {MAX_RESULT_BYTES // 1024 // 1024} MB."})
    sys.stdout.write(text)


if __name__ == "__main__":
    _serve()
