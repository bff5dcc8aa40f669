"""The simulated model in a process of its own, for everything that is compared."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.contender import ROOT
from flows.engine.simulated_model import Script, SimulatedModel
from flows.engine.simulated_model.server import build_server, open_socket
from flows.examples.scripts import example_script

_CARELESS = re.compile(r"#C8763(?!A)")
"""The colour of the first try that lacks a digit."""


@contextlib.contextmanager
def serving_model(latency: float) -> Iterator[str]:
    """The base URL of a simulated model that takes ``latency`` seconds to answer."""
    command = [sys.executable, "-m", "benchmarks.model_server", str(latency)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip() if process.stdout is not None else ""
    finally:
        process.terminate()
        process.wait()


def make_script() -> Script:
    """The replies of the colour-theme example, for askers that show an earlier output in whichever way."""
    example = example_script()

    def reply(tool: str, body: dict[str, Any], input: Any) -> Mapping[str, Any]:
        is_shown = _CARELESS.search(str(body["messages"])) is not None
        answer = example.find_reply(tool, shown=int(is_shown), hidden=0)
        arguments = answer(body, input) if callable(answer) else answer
        return arguments if isinstance(arguments, Mapping) else {}

    def make(tool: str) -> Any:
        return lambda body, input: reply(tool, body, input)

    return Script({tool: [make(tool)] for tool in ("pick_seed_colours", "assign_colour_roles", "build_colour_suite")})


def main(latency: float) -> None:
    """Print the base URL and serve until terminated."""
    listener, address = open_socket("127.0.0.1", 0)
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    build_server(SimulatedModel(script=make_script(), latency=latency, keep_calls=0)).run(sockets=[listener])


if __name__ == "__main__":
    main(float(sys.argv[1]))
