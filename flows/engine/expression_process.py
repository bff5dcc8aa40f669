"""Evaluates one expression in a process of its own, which can be killed: ``cel`` itself can't be interrupted.

Run as a module, it reads a request from its standard input and writes the answer to its standard output, both JSON.
A plain subprocess works where a forked one does not: in a thread, under a running event loop, in a worker of a pool
that may have no children.
"""

from __future__ import annotations

import json
import math
import os
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

# More at once would only take the processor from each other, and from the runs beside them.
_slots = threading.BoundedSemaphore(2)


def evaluate_in_process(text: str, variables: Mapping[str, Any], *, timeout: float) -> Any:
    """Evaluate ``text`` over JSON values in a new process that lives at most ``timeout`` seconds. Blocks until then.

    Raises ``ExpressionTimeout`` if it took longer, ``ExpressionError`` if it failed or took too much memory.
    """
    request = json.dumps({"text": text, "variables": dict(variables), "seconds": math.ceil(timeout)})
    with _slots:
        try:
            finished = subprocess.run(
                [sys.executable, "-m", "flows.engine.expression_process"],
                input=request.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=timeout,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)])},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ExpressionTimeout(
                f"The expression was stopped: it took longer than {timeout:g} s. "
                "Loops inside each other (all, exists, filter, map) over long lists are the usual reason."
            ) from None
    if finished.returncode != 0:
        raise ExpressionError(
            "The expression was stopped: it takes too much memory. It makes lists or texts that grow with every step."
        )
    answer = json.loads(finished.stdout)
    if "error" in answer:
        raise ExpressionError(answer["error"])
    return answer["result"]


def _serve() -> None:
    # POSIX only, and the engine must be importable elsewhere.
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    request = json.load(sys.stdin)
    # Should the parent die, nobody is left to kill us.
    resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"] + 1, request["seconds"] + 1))
    # ``cel`` imports its command line, and with it half a second of libraries that nothing here uses.
    sys.modules["cel.cli"] = ModuleType("cel.cli")
    from flows.engine.expressions import Scope, parse_expression

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
