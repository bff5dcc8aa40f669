"""Plug-ins: registered, loaded, distinguished by their source, and given up when they take too long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.engine import plugin_calls
from flows.engine.errors import ExpressionError, PluginError
from flows.engine.plugin_calls import call_function
from flows.engine.plugins import ENTRY_POINT_GROUP, PythonFunction, Registry, load_plugins
from flows.engine.plugins import registry as shared_registry
from flows.engine.spec import AuditSpec
from tests.engine.builders import make_flow, make_step
from tests.engine.executions import LONG, execute, simulate

WriteModule = Callable[[str, str], str]


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Writes a module that can be imported, and gives its name. What it registers is gone after the test."""
    for kind in ("output_types", "audits", "functions"):
        monkeypatch.setattr(shared_registry, kind, {})
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for name in set(sys.modules) - before:
        if (file := getattr(sys.modules[name], "__file__", None)) and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


class TestRegistering:
    @pytest.mark.parametrize("kind", ["audit", "function", "output_type"])
    @pytest.mark.parametrize("name", [lambda output: True, "", "x" * 101])
    def test_a_decorator_without_a_name_is_refused_and_not_taken_for_one(self, kind: str, name: Any) -> None:
        with pytest.raises(PluginError) as caught:
            getattr(Registry(), kind)(name)
        assert str(caught.value).startswith(f'Write @{kind}("name")')

    @pytest.mark.parametrize(
        ("function", "given", "result"),
        [
            (lambda b, *, a, c=3: [a, b, c], {"a": 1, "b": 2, "d": 4}, [1, 2, 3]),
            (lambda **everything: everything, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
            (lambda a: a["list"].append(2), {"a": {"list": [1]}}, None),
        ],
    )
    async def test_a_function_gets_copies_of_the_variables_that_it_names(
        self, function: Any, given: dict[str, Any], result: Any
    ) -> None:
        before = repr(given)
        assert await call_function("f", PythonFunction("f", function), given, timeout=60) == result
        assert repr(given) == before


SOURCE = """
from pydantic import BaseModel
from flows.engine.plugins import audit, function, output_type

@audit("polite")
def check(output):
    return "please" in output["text"]

@function("tidy")
async def tidy(value):
    return value

@output_type("report")
class Report(BaseModel):
    title: str
    def audit(self):
        return self.title != ""
"""


class TestFingerprints:
    def load(self, write_module: WriteModule, name: str, source: str) -> dict[str, str]:
        kinds: list[dict[str, Any]] = [shared_registry.audits, shared_registry.functions, shared_registry.output_types]
        for kind in kinds:
            kind.clear()
        load_plugins([write_module(name, source)])
        return {name: entry.fingerprint for kind in kinds for name, entry in kind.items()}

    @pytest.mark.parametrize(
        ("old", "new", "changed"),
        [
            ("\nfrom pydantic", "# moved\n\nfrom pydantic", set()),
            ('"please" in', '"thanks" in', {"polite"}),
            ("    return value", "    return dict(value)", {"tidy"}),
            ("title: str", "title: str | None", {"report"}),
            ('self.title != ""', 'self.title != "x"', {"report"}),
        ],
    )
    def test_a_change_of_its_source_changes_it_and_no_other(
        self, write_module: WriteModule, old: str, new: str, changed: set[str]
    ) -> None:
        before = self.load(write_module, "plugins_before", SOURCE)
        after = self.load(write_module, "plugins_after", SOURCE.replace(old, new))
        assert {name for name in before if before[name] != after[name]} == changed
        assert before.keys() == {"polite", "tidy", "report"}


class TestLoading:
    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (None, "No module named 'broken_plugins'"),
            ("def check(:", "invalid syntax"),
            ("raise SystemExit(3)", "3"),
            (
                "from flows.engine.plugins import audit as a\n@a('same')\ndef one(): ...\n@a('same')\ndef two(): ...",
                "“same” is registered twice: by broken_plugins.one and by broken_plugins.two.",
            ),
        ],
        ids=["missing", "syntax", "exit", "twice"],
    )
    def test_one_that_cannot_be_imported_is_named_with_the_reason(
        self, write_module: WriteModule, source: str | None, words: str
    ) -> None:
        if source is not None:
            write_module("broken_plugins", source)
        with pytest.raises(PluginError, match="Plug-in module “broken_plugins” can't be imported: ") as caught:
            load_plugins(["broken_plugins"])
        assert words in str(caught.value)

    def test_packages_can_name_theirs_as_entry_points(self, write_module: WriteModule, tmp_path: Path) -> None:
        write_module("packaged_plugins", SOURCE)
        self.install(tmp_path, "packaged = packaged_plugins")
        load_plugins([])
        assert shared_registry.audits.keys() == {"polite"}
        self.install(tmp_path, "packaged = nowhere_to_be_found:plugins")
        with pytest.raises(PluginError, match=r"Plug-in “packaged” .* No module named 'nowhere_to_be_found'"):
            load_plugins([])

    @staticmethod
    def install(place: Path, entry_point: str) -> None:
        info = place / "packaged_plugins-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged-plugins\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{entry_point}\n")


ROOT = Path(__file__).parents[2]


@pytest.fixture
def stuck() -> Iterator[Callable[..., Any]]:
    """A function that does not return before the test has ended."""
    end = threading.Event()
    yield end.wait
    end.set()


async def call(name: str, function: Callable[[], Any], *, timeout: float = 60) -> Any:
    return await plugin_calls.call_function(name, PythonFunction(name, function), {}, timeout=timeout)


async def run_audited(audit: Callable[..., Any], **options: Any) -> Any:
    """The only attempt of a run whose output is held against a Python audit, which may take 0.05 seconds."""
    registry = Registry()
    registry.audit("check")(audit)
    step = make_step(1, audits=(AuditSpec(name="Check", rule="python:check"),), max_retries=0)
    end = await execute(make_flow(step), simulate(tool_1=[LONG]), registry=registry, plugin_timeout=0.05, **options)
    (attempt,) = end.history.attempts(1)
    return attempt


async def wait(output: Any) -> Any:
    await asyncio.Event().wait()


async def generate(output: Any) -> Any:
    yield "One."
    await asyncio.Event().wait()


def give(output: Any) -> Any:
    return wait(output)


class TestAudits:
    @pytest.mark.parametrize("kind", [None, wait, generate, give], ids=["thread", "coroutine", "generator", "given"])
    async def test_one_that_never_returns_is_an_audit_error_and_the_output_is_kept(self, kind: Any, stuck: Any) -> None:
        attempt = await run_audited(kind or (lambda output: stuck()))
        (issue,) = [issue for issue in attempt.issues if issue.code == "audit_error"]
        assert issue.description.endswith("“python:check” did not return within 0.05 seconds.")
        assert (attempt.outcome.value, attempt.output) == ("failed", LONG)


class TestThreads:
    @pytest.fixture(autouse=True)
    def one_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plugin_calls, "MAX_THREADS", 1)

    async def test_a_cancelled_run_leaves_its_stuck_call_behind(self, stuck: Any) -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def begin() -> None:
            loop.call_soon_threadsafe(begun.set)
            stuck()

        task = asyncio.ensure_future(call("slow", begin))
        await asyncio.wait_for(begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await call("quick", lambda: 7) == 7

    async def test_a_function_that_gets_stuck_again_and_again_is_not_called_any_more_until_it_returns(self) -> None:
        end = threading.Event()
        for _ in range(plugin_calls.MAX_ABANDONED):
            with pytest.raises(ExpressionError, match="did not return"):
                await call("often", end.wait, timeout=0.001)
        with pytest.raises(ExpressionError, match="“often” is not called: 8 earlier calls of it on this worker"):
            await call("often", end.wait)
        assert await call("other", lambda: 7) == 7
        end.set()
        async with asyncio.timeout(30):
            for thread in [one for one in threading.enumerate() if one.name == "call"]:
                await asyncio.to_thread(thread.join)
        assert await call("often", end.wait)


EXITS = """
import asyncio, os, sys, threading
from flows.engine import AuditSpec, FlowSpec, Registry, StepSpec, run_flow_sync
from flows.engine.openai_client import simulated_client
from flows.engine.simulated_model import SimulatedModel

registry = Registry()
registry.function("quick")(lambda input: {"text": "Tea."})
registry.audit("stuck")(lambda output: threading.Event().wait())

def run(**audits):
    step = StepSpec(name="Give", compute="python:quick", max_retries=0, **audits)
    flow = FlowSpec(name="example", steps=[step])
    client = simulated_client(SimulatedModel())
    return run_flow_sync(flow, {}, client=client, registry=registry, plugin_timeout=0.05).status.value

print(run(), run(audits=[AuditSpec(name="Stuck", rule="python:stuck")]), run(), flush=True)
if os.fork() == 0:
    print(run(), flush=True)
else:
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.mark.nightly
def test_a_process_with_a_stuck_plug_in_forks_and_exits_like_any_other() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", EXITS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.split() == ["succeeded", "failed", "succeeded", "succeeded", "0"]
