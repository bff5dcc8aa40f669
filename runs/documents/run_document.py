"""One run as a JSON document."""

from __future__ import annotations

from typing import Any

from flows.engine.history import Severity
from runs.documents.many_runs import RunDocuments
from runs.documents.step_document import Shown
from runs.models import Run


def build_run_document(
    run: Run, *, minimum: Severity = Severity.LOW, only_final_attempts: bool = False
) -> dict[str, Any]:
    """A run as JSON types. Step 0 is its input; an attempt that still runs has the outcome None.

    ``minimum`` leaves out issues of lower severity; ``only_final_attempts`` all attempts of each step but the one that
    decides. Raises ``Run.DoesNotExist`` if the run is gone meanwhile.
    """
    documents = RunDocuments(shown=Shown(minimum=minimum, only_final=only_final_attempts))
    for document in documents.read([run.pk]):
        return document
    raise Run.DoesNotExist
