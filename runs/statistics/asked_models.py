"""Which model a run asks: the one of all of its steps, as its version and its settings name it.

That is known before the first attempt, so that a run counts for the same model wherever it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.models import FlowVersion

LONGEST = 200
"""Characters that are kept of a name."""
_MOST_KNOWN = 1_000
"""Versions that a process remembers."""


@dataclass(frozen=True, slots=True)
class AskedModels:
    """The models that a version names; steps that name none ask that of the run's settings (``uses_settings``)."""

    named: frozenset[str]
    uses_settings: bool

    def list_models(self, settings: Any) -> list[str]:
        """The models that a run with these settings asks."""
        model = settings.get("model") if self.uses_settings else None
        return sorted(self.named | {model} if model else self.named)

    def choose(self, settings: Any) -> tuple[str, bool]:
        """The model that a run with these settings asks, empty for several or none; and whether it asks several."""
        models = self.list_models(settings)
        return models[0][:LONGEST] if len(models) == 1 else "", len(models) > 1


_known: dict[str, AskedModels] = {}
"""By the digest of a version: what has the same names the same models, whatever its key is in which database."""


def find_asked_models(versions: Mapping[int, str]) -> Mapping[str, AskedModels]:
    """What versions ask, by their digests; ``versions`` are digests by key.

    Reads those that this process has not met yet, in one query.
    """
    missing = [key for key, digest in versions.items() if digest not in _known]
    if missing:
        if len(_known) > _MOST_KNOWN:
            _known.clear()
            missing = list(versions)
        rows = FlowVersion.objects.filter(pk__in=missing).order_by()
        _known.update((digest, _read_asked(spec)) for digest, spec in rows.values_list("digest", "spec"))
    return {digest: _known[digest] for digest in versions.values()}


def _read_asked(spec: Any) -> AskedModels:
    """What a definition asks. Only this is looked at: what else an old one says may be refused by now.

    One that a later ToolFlow wrote in another shape asks nothing that is known here.
    """
    try:
        asked = [step.get("model") or spec.get("model") for step in spec["steps"] if step.get("compute") is None]
    except (AttributeError, KeyError, TypeError):
        return AskedModels(frozenset(), False)
    return AskedModels(frozenset(model for model in asked if model and isinstance(model, str)), not all(asked))
