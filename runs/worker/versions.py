"""The executable specs of a process: versions never change, so each is prepared once."""

from __future__ import annotations

from flows.engine.errors import SpecError
from flows.engine.plugins import registry
from flows.engine.providers import Providers
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import prepare_spec
from flows.models import FlowVersion
from flows.plugin_use import find_missing_names
from runs.models import Run

MAX_PREPARED = 256
"""Executable specs that a process keeps."""


class MissingPluginsError(Exception):
    """This process lacks plug-ins that a version needs; another worker may have them."""


class PreparedVersions:
    """Executable specs by version and model settings; the oldest are dropped first."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._specs: dict[tuple[int, ModelSettings], FlowSpec] = {}

    def find(self, run: Run) -> FlowSpec | None:
        """The spec to execute ``run`` with, if its version is prepared already."""
        spec = self._specs.get(_make_key(run))
        return None if spec is None else _set_limits(spec, run)

    def load(self, run: Run) -> FlowSpec:
        """The spec to execute ``run`` with; reads its version from the database if it is not prepared yet.

        Raises ``MissingPluginsError`` with a sentence, and ``SpecError`` if the version can't run anywhere.
        """
        # Runs that were claimed together ask for the same version together.
        if (found := self.find(run)) is not None:
            return found
        key = _make_key(run)
        version = FlowVersion.objects.get(pk=run.version_id)
        spec = version.flow_spec
        try:
            prepared = prepare_spec(spec, registry=registry, defaults=key[1], providers=self._providers)
        except SpecError:
            if missing := dict.fromkeys(use.what for use in find_missing_names(spec, registry)):
                raise MissingPluginsError(
                    f"Waits for a worker that has what version {version.number} needs: {', '.join(missing)}."
                ) from None
            raise
        self._specs[key] = prepared
        if len(self._specs) > MAX_PREPARED:
            del self._specs[next(iter(self._specs))]
        return _set_limits(prepared, run)


def _make_key(run: Run) -> tuple[int, ModelSettings]:
    return run.version_id, ModelSettings.model_validate(run.model_settings)


def _set_limits(spec: FlowSpec, run: Run) -> FlowSpec:
    time_limit = int(run.time_limit.total_seconds()) if run.time_limit is not None else None
    own = (run.token_budget, run.cost_budget, time_limit)
    if own == (spec.token_budget, spec.cost_budget, spec.time_limit):
        return spec
    return spec.with_limits(token_budget=run.token_budget, cost_budget=run.cost_budget, time_limit=time_limit)
