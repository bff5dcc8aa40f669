"""The inputs of runs whose flow redacts something in them, for as long as the runs need them."""

from __future__ import annotations

from django.db import models

from flows.json_field import PackedJSONField
from runs.models.run import Run


class OriginalInput(models.Model):
    """What a run works on, apart from the row that everybody reads: it is gone once the run is counted.

    Where that can't be done retention deletes it an hour after the run has ended.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="original_input")
    input = PackedJSONField()

    def __str__(self) -> str:
        return f"The input of run {self.run_id}"
