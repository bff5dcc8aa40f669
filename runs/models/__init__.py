"""Runs and their history: rows that the worker writes and pages read.

``run`` holds the Run, which is also the queue's truth; ``history`` what its attempts brought; ``worker`` who is at
work; ``facet`` what runs can be found by, ``saved_view`` what users keep of that; ``statistics``
what they come to by day; ``spending`` what flows with a budget have used; ``limit`` what the provider may be asked
for; ``bulk_action`` what is done to many runs at once; ``api_token`` by what scripts
sign in, ``idempotent_request`` what they were answered, ``webhook`` what others are told; ``audit_entry`` who did
what, ``original_input`` what runs work on whose input is redacted, ``browser_session`` who is signed in,
``provider_identity`` who signs in through a provider,
``purged_day`` which days lack runs that retention deleted.
"""

from runs.models.api_token import ApiToken, TokenScope
from runs.models.audit_entry import AppendOnlyError, AuditEntry
from runs.models.browser_session import BrowserSession
from runs.models.bulk_action import BulkAction, BulkKind, WorkState
from runs.models.facet import FacetKind, RunFacet
from runs.models.history import Attempt, AttemptRequest, Issue, Step, TokenUsage
from runs.models.idempotent_request import IdempotentRequest
from runs.models.limit import LimitLedger, RateLimit
from runs.models.lock import Lock
from runs.models.original_input import OriginalInput
from runs.models.provider_identity import ProviderIdentity
from runs.models.purged_day import PurgedDay
from runs.models.run import EndReason, Priority, Run, RunStatus
from runs.models.saved_view import SavedView
from runs.models.spending import FlowSpending
from runs.models.statistics import DailyAudits, DailyIssues, DailyRuns, DailySteps
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

__all__ = [
    "ApiToken",
    "AppendOnlyError",
    "Attempt",
    "AttemptRequest",
    "AuditEntry",
    "BrowserSession",
    "BulkAction",
    "BulkKind",
    "DailyAudits",
    "DailyIssues",
    "DailyRuns",
    "DailySteps",
    "DeliveryState",
    "EndReason",
    "FacetKind",
    "FlowSpending",
    "IdempotentRequest",
    "InstallationSecret",
    "Issue",
    "LimitLedger",
    "Lock",
    "OriginalInput",
    "Priority",
    "ProviderIdentity",
    "PurgedDay",
    "RateLimit",
    "Run",
    "RunFacet",
    "RunStatus",
    "SavedView",
    "SigningSecret",
    "Step",
    "TokenScope",
    "TokenUsage",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
    "WebhookTry",
    "WorkState",
    "Worker",
]
