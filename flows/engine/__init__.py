"""The engine: runs flows of strict tool calls, audits every output, and tries again with what was wrong.

It knows no Django and no database, and can be used from a script on its own::

    from flows.engine import AuditSpec, FlowSpec, OpenAIClient, StepSpec, run_flow_sync
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

# ``cel`` imports its command line, and with it a toolkit for terminals: 25 MB and 0.2 s of each process.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

from flows.engine.backtest import backtest_run, backtest_runs, backtest_runs_sync, find_untestable, leave_one_out
from flows.engine.backtest_result import AuditChange, BacktestKind, BacktestReason, BacktestResult, RunBacktest
from flows.engine.errors import (
    ExpressionError,
    FlowWarning,
    InputError,
    ModelError,
    OutputError,
    PluginError,
    Problem,
    SpecError,
    ToolFlowError,
)
from flows.engine.execution import Execution, Progress, Received, Recorder, Start
from flows.engine.history import (
    Attempt,
    AttemptError,
    History,
    Issue,
    Outcome,
    Severity,
    TokenUsage,
    filter_issues,
)
from flows.engine.model_families import ReasoningEffort
from flows.engine.planner import Call, Compute, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import Registry, audit, function, load_plugins, output_type, registry
from flows.engine.providers import Api, ModelClient, ModelReply, Provider
from flows.engine.result import FoundIssue, RunResult, StepResult
from flows.engine.running import run_flow, run_flow_sync
from flows.engine.simulated_model import Script, SimulatedModel
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings, ServiceTier, StepSpec
from flows.engine.spec_check import check_spec, find_warnings, prepare_spec

if TYPE_CHECKING:
    from flows.engine.openai_client import OpenAIClient, simulated_client


def __getattr__(name: str) -> Any:
    # Web processes make no calls: the ``openai`` library takes 25 MB and as long as everything else here together.
    if name not in ("OpenAIClient", "simulated_client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flows.engine import openai_client

    return getattr(openai_client, name)
