"""The engine: runs flows of strict tool calls, audits every output, and tries again with what was wrong.

It knows no Django and no database, and can be used from a script on its own::

    from flows.engine import AuditSpec, FlowSpec, OpenAIClient, StepSpec, run_flow_sync

Names are loaded when they are first used, so that importing one part doesn't import the OpenAI library.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

# ``cel`` imports its command line, and with it a toolkit for terminals: 25 MB and 0.2 s of each process.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

if TYPE_CHECKING:
    # With “as”, type checkers take an import for an export.
    from flows.engine.errors import ExpressionError as ExpressionError
    from flows.engine.errors import FlowWarning as FlowWarning
    from flows.engine.errors import InputError as InputError
    from flows.engine.errors import ModelError as ModelError
    from flows.engine.errors import OutputError as OutputError
    from flows.engine.errors import PluginError as PluginError
    from flows.engine.errors import Problem as Problem
    from flows.engine.errors import SpecError as SpecError
    from flows.engine.errors import ToolFlowError as ToolFlowError
    from flows.engine.execution import Execution as Execution
    from flows.engine.execution import Progress as Progress
    from flows.engine.execution import Received as Received
    from flows.engine.execution import Recorder as Recorder
    from flows.engine.execution import Start as Start
    from flows.engine.history import Attempt as Attempt
    from flows.engine.history import AttemptError as AttemptError
    from flows.engine.history import History as History
    from flows.engine.history import Outcome as Outcome
    from flows.engine.issues import Issue as Issue
    from flows.engine.issues import Severity as Severity
    from flows.engine.issues import filter_issues as filter_issues
    from flows.engine.model_client import ModelClient as ModelClient
    from flows.engine.model_client import ModelReply as ModelReply
    from flows.engine.model_families import ReasoningEffort as ReasoningEffort
    from flows.engine.openai_client import OpenAIClient as OpenAIClient
    from flows.engine.openai_client import simulated_client as simulated_client
    from flows.engine.planner import Call as Call
    from flows.engine.planner import Compute as Compute
    from flows.engine.planner import EndReason as EndReason
    from flows.engine.planner import EndStatus as EndStatus
    from flows.engine.planner import Finish as Finish
    from flows.engine.planner import Wait as Wait
    from flows.engine.planner import next_action as next_action
    from flows.engine.plugins import Registry as Registry
    from flows.engine.plugins import audit as audit
    from flows.engine.plugins import function as function
    from flows.engine.plugins import load_plugins as load_plugins
    from flows.engine.plugins import output_type as output_type
    from flows.engine.plugins import registry as registry
    from flows.engine.providers import Api as Api
    from flows.engine.providers import Provider as Provider
    from flows.engine.result import FoundIssue as FoundIssue
    from flows.engine.result import RunResult as RunResult
    from flows.engine.result import StepResult as StepResult
    from flows.engine.running import run_flow as run_flow
    from flows.engine.running import run_flow_sync as run_flow_sync
    from flows.engine.simulated_model import Script as Script
    from flows.engine.simulated_model import SimulatedModel as SimulatedModel
    from flows.engine.spec import AuditSpec as AuditSpec
    from flows.engine.spec import FlowSpec as FlowSpec
    from flows.engine.spec import ModelSettings as ModelSettings
    from flows.engine.spec import ServiceTier as ServiceTier
    from flows.engine.spec import StepSpec as StepSpec
    from flows.engine.spec_check import check_spec as check_spec
    from flows.engine.spec_check import find_warnings as find_warnings
    from flows.engine.spec_check import prepare_spec as prepare_spec
    from flows.engine.usage import TokenUsage as TokenUsage

_HOMES = {
    "errors": (
        "ExpressionError",
        "FlowWarning",
        "InputError",
        "ModelError",
        "OutputError",
        "PluginError",
        "Problem",
        "SpecError",
        "ToolFlowError",
    ),
    "execution": ("Execution", "Progress", "Received", "Recorder", "Start"),
    "history": ("Attempt", "AttemptError", "History", "Outcome"),
    "issues": ("Issue", "Severity", "filter_issues"),
    "model_client": ("ModelClient", "ModelReply"),
    "model_families": ("ReasoningEffort",),
    "openai_client": ("OpenAIClient", "simulated_client"),
    "planner": ("Call", "Compute", "EndReason", "EndStatus", "Finish", "Wait", "next_action"),
    "plugins": ("Registry", "audit", "function", "load_plugins", "output_type", "registry"),
    "providers": ("Api", "Provider"),
    "result": ("FoundIssue", "RunResult", "StepResult"),
    "running": ("run_flow", "run_flow_sync"),
    "simulated_model": ("Script", "SimulatedModel"),
    "spec": ("AuditSpec", "FlowSpec", "ModelSettings", "ServiceTier", "StepSpec"),
    "spec_check": ("check_spec", "find_warnings", "prepare_spec"),
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
