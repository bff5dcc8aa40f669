"""The engine on its own: a script of a few lines, no database and no Django."""

from __future__ import annotations

import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import flows.engine
from flows.engine.simulated_model import Fault, FaultKind, Reply, Script, SimulatedModel
from tests.engine.model_server import ModelServer

ROOT = Path(__file__).parents[2]

SCRIPT = """\
import sys

sys.modules["django"] = None  # from here on “import django” fails

import asyncio

from pydantic import BaseModel
from flows.engine import AuditSpec, FlowSpec, OpenAIClient, StepSpec, audit, output_type, run_flow, run_flow_sync


@output_type("haiku")
class Haiku(BaseModel):
    lines: list[str]


@audit("three_lines")
def check_lines(output: Haiku):
    if len(output.lines) != 3:
        return {"path": "/lines", "description": f"{len(output.lines)} lines; a haiku has three.", "found": 1}


step = StepSpec(
    name="Write", tool_name="write_haiku", output_type="haiku", audits=[
        AuditSpec(name="Three lines", rule="python:three_lines"),
        AuditSpec(name="On topic", rule="output.lines.exists(l, l.contains(input.topic))", severity="low"),
    ],
)
flow = FlowSpec(name="haiku", model="gpt-5-mini", steps=[step])
client = OpenAIClient(api_key="any", base_url=sys.argv[1])
result = RUN
for attempt in result.step(1).attempts:
    print(attempt.number, attempt.outcome, attempt.output, [issue.description for issue in attempt.issues])
print(result.status, result.retries_used, result.usage.total > 0, result.final_results[-1].output["lines"][0])
"""

RUNS = {
    "sync": 'run_flow_sync(flow, {"topic": "tea"}, client=client)',
    "async": 'asyncio.run(run_flow(flow, {"topic": "tea"}, client=client))',
}

PRINTED = """\
1 failed {'lines': ['Only one']} ['1 lines; a haiku has three.', 'The audit “On topic” did not pass.']
2 errored None []
3 passed {'lines': ['Hot tea', 'cold hands', 'rain']} []
succeeded 1 True Hot tea
"""


class TestScript:
    @pytest.mark.parametrize("way", RUNS)
    def test_a_few_lines_run_a_flow_without_django(self, way: str, model_server: ModelServer, tmp_path: Path) -> None:
        replies: list[Reply] = [
            {"lines": ["Only one"]},
            Fault(FaultKind.RATE_LIMITED, 0),
            {"lines": ["Hot tea", "cold hands", "rain"]},
        ]
        model_server.app = SimulatedModel(script=Script({"write_haiku": replies}))
        script = tmp_path / "haiku.py"
        script.write_text(SCRIPT.replace("RUN\n", f"{RUNS[way]}\n", 1))
        done = subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning", str(script), model_server.base_url],
            cwd=tmp_path,
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert (done.stderr, done.stdout) == ("", PRINTED)
        assert done.returncode == 0


class TestNames:
    def test_none_of_them_is_hidden_by_a_module_of_the_same_name(self) -> None:
        offered = {name for name, thing in vars(flows.engine).items() if not inspect.ismodule(thing)}
        assert offered.isdisjoint(module.name for module in pkgutil.iter_modules(flows.engine.__path__))

    def test_an_unknown_name_is_an_ordinary_error(self) -> None:
        with pytest.raises(ImportError, match="cannot import name 'Unknown'"):
            exec("from flows.engine import Unknown")  # noqa: S102  # what a script writes

    def test_the_openai_library_is_loaded_with_the_client_only(self) -> None:
        code = (
            "import sys, flows.engine; is_early = 'openai' in sys.modules; "
            "flows.engine.OpenAIClient; print(is_early, 'openai' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == "False True\n"
