"""``python -m flows.engine.simulated_model``: serve the simulated model over TCP."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from flows.engine.simulated_model.app import SimulatedModel
from flows.engine.simulated_model.chance import Faults, Latency
from flows.engine.simulated_model.script import FaultKind, Script
from flows.engine.simulated_model.server import build_server, open_socket


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted. Wrong arguments end the program with one sentence and status 2."""
    parser = _build_parser()
    options = parser.parse_args(arguments)
    try:
        app = SimulatedModel(
            script=_read_script(options.script),
            faults=Faults(dict(options.fault), seed=options.seed, retry_after=options.retry_after),
            latency=options.latency,
            seed=options.seed,
            keep_calls=0,
        )
        listener, address = open_socket(options.host, options.port)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"Simulated model at {address}", flush=True)  # noqa: T201  # a program's own terminal
    build_server(app).run(sockets=[listener])


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flows.engine.simulated_model",
        description="Serve an OpenAI-compatible model that invents its answers.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes any free port")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--latency", type=_read_latency, default=0.0, metavar="SECONDS", help="0.5, or 0.2-0.8 for a spread"
    )
    parser.add_argument(
        "--fault",
        type=_read_fault,
        action="append",
        default=[],
        metavar="KIND=RATE",
        help=f"strikes that share of calls; may be repeated. Kinds: {', '.join(FaultKind)}",
    )
    parser.add_argument("--retry-after", type=float, default=1.0, metavar="SECONDS", help="sent with rate_limited")
    parser.add_argument("--script", type=Path, metavar="FILE", help='scripted replies as JSON: {"tool": [{...}, ...]}')
    return parser


def _read_latency(text: str) -> Latency:
    least, dash, most = text.partition("-")
    try:
        return (float(least), float(most)) if dash else float(least)
    except ValueError:
        raise argparse.ArgumentTypeError(f"“{text}” is no latency: give seconds such as 0.5, or 0.2-0.8.") from None


def _read_fault(text: str) -> tuple[str, float]:
    kind, _, rate = text.partition("=")
    try:
        return kind, float(rate)
    except ValueError:
        raise argparse.ArgumentTypeError(f"“{text}” is no fault: give KIND=RATE such as reset=0.1.") from None


def _read_script(path: Path | None) -> Script | None:
    if path is None:
        return None
    try:
        return Script.from_mapping(json.loads(path.read_text()))
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(f"The script {path} is no JSON object of replies: {error}") from None


if __name__ == "__main__":
    main()
