"""Runs and their history, and all other rows: each module is named after what it holds."""

from runs.models.account import ApiToken, ProviderIdentity, TokenScope
from runs.models.audit_entry import AppendOnlyError, AuditEntry
from runs.models.backtest import Backtest, BacktestRun
from runs.models.browser_session import BrowserSession
from runs.models.bulk_action import BulkAction, BulkKind
from runs.models.facet import FacetKind, RunFacet
from runs.models.history import Attempt, AttemptRequest, Issue, Step, TokenUsage
from runs.models.idempotent_request import IdempotentRequest
from runs.models.limit import LimitLedger, RateLimit
from runs.models.lock import Lock
from runs.models.long_work import WorkState
from runs.models.original_input import OriginalInput
from runs.models.run import EndReason, Priority, Run, RunStatus
from runs.models.saved_view import SavedView
from runs.models.spending import FlowSpending
from runs.models.statistics import DailyAudits, DailyIssues, DailyRuns, DailySteps, PurgedDay
from runs.models.webhook import (
    DeliveryState,
    InstallationSecret,
    SigningSecret,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
    WebhookTry,
)
from runs.models.worker import Worker
