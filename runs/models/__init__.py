"""Runs and their history, and all other rows: each module is named after what it holds."""

from runs.models.account import ApiToken, BrowserSession, IdempotentRequest, ProviderIdentity, TokenScope
from runs.models.audit_entry import AppendOnlyError, AuditEntry
from runs.models.history import Attempt, AttemptRequest, FacetKind, Issue, OriginalInput, RunFacet, Step, TokenUsage
from runs.models.limit import FlowSpending, LimitLedger, RateLimit
from runs.models.long_work import Backtest, BacktestRun, BulkAction, BulkKind, WorkState
from runs.models.run import EndReason, Priority, Run, RunStatus
from runs.models.saved_view import SavedView
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
from runs.models.worker import Lock, Worker
