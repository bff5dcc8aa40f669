"""Runs and attempts as JSON documents: pages, exports and the API give the same ones."""

from runs.documents.many_runs import RunDocuments
from runs.documents.run_document import build_attempt_document, build_run_document

__all__ = ["RunDocuments", "build_attempt_document", "build_run_document"]
