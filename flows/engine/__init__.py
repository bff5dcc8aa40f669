"""The engine: runs flows of strict tool calls, audits every output, and tries again with what was wrong.

It knows no Django and no database, and can be used from a script on its own::

    from flows.engine import AuditSpec, FlowSpec, OpenAIClient, StepSpec, run_flow_sync

Names are loaded when they are first used, so that importing one part doesn't import the OpenAI library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.engine.errors import (
        ExpressionError,
        InputError,
        ModelError,
        PluginError,
        Problem,
        SpecError,
        ToolFlowError,
    )
    from flows.engine.execution import Execution, Progress, Recorder, Start
    from flows.engine.history import Attempt, AttemptError, History, Outcome
    from flows.engine.issues import Issue, Severity, filter_issues
    from flows.engine.model_client import ModelClient, ModelReply
    from flows.engine.openai_client import OpenAIClient, simulated_client
    from flows.engine.planner import Call, Compute, EndReason, EndStatus, Finish, Wait, next_action
    from flows.engine.plugins import Registry, audit, function, load_plugins, output_type, registry
    from flows.engine.result import FoundIssue, RunResult, StepResult
    from flows.engine.running import run_flow, run_flow_sync
    from flows.engine.simulated_model import Script, SimulatedModel
    from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings, StepSpec
    from flows.engine.spec_check import check_spec, find_doubts, prepare_spec
    from flows.engine.usage import TokenUsage

_HOMES = {
    "errors": (
        "ExpressionError",
        "InputError",
        "ModelError",
        "PluginError",
        "Problem",
        "SpecError",
        "ToolFlowError",
    ),
    "execution": ("Execution", "Progress", "Recorder", "Start"),
    "history": ("Attempt", "AttemptError", "History", "Outcome"),
    "issues": ("Issue", "Severity", "filter_issues"),
    "model_client": ("ModelClient", "ModelReply"),
    "openai_client": ("OpenAIClient", "simulated_client"),
    "planner": ("Call", "Compute", "EndReason", "EndStatus", "Finish", "Wait", "next_action"),
    "plugins": ("Registry", "audit", "function", "load_plugins", "output_type", "registry"),
    "result": ("FoundIssue", "RunResult", "StepResult"),
    "running": ("run_flow", "run_flow_sync"),
    "simulated_model": ("Script", "SimulatedModel"),
    "spec": ("AuditSpec", "FlowSpec", "ModelSettings", "StepSpec"),
    "spec_check": ("check_spec", "find_doubts", "prepare_spec"),
    "usage": ("TokenUsage",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604  # built from the table above, so that no name is written a third time
    *sorted(_HOME_OF)
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
