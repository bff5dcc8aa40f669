"""The labels that bulk actions give."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OF_ACTION = re.compile(r"bulk-[0-9]+")


def list_lasting_labels(labels: Sequence[str]) -> list[str]:
    """The labels that a run hands on to one that repeats it: not that of the bulk action which started it.

    That one finds what this action started, and counts beside those that a run may be given.
    """
    return [label for label in labels if not _OF_ACTION.fullmatch(label)]
