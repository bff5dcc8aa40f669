"""Runs and attempts as JSON documents: pages, exports and the API give the same ones."""

from runs.documents.attempt_document import build_attempt_document, build_issue_document, build_usage_document
from runs.documents.many_runs import RunDocuments
from runs.documents.run_document import build_run_document
from runs.documents.run_summary import build_summary, load_run_rows
from runs.documents.step_document import Shown, build_attempt, build_input_attempt, list_attempts
from runs.documents.steps_of_run import StepDocuments

__all__ = [
    "RunDocuments",
    "Shown",
    "StepDocuments",
    "build_attempt",
    "build_attempt_document",
    "build_input_attempt",
    "build_issue_document",
    "build_run_document",
    "build_summary",
    "build_usage_document",
    "list_attempts",
    "load_run_rows",
]
