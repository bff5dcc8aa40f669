"""Which plug-ins a flow names, so that a worker can tell whether it has them all."""

from __future__ import annotations

from flows.engine.plugins import PREFIX, Registry
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import AUDIT_EXPRESSIONS, STEP_EXPRESSIONS


def find_missing_plugins(spec: FlowSpec, registry: Registry) -> list[str]:
    """The plug-ins that ``spec`` names and ``registry`` lacks, in words: ``the audit “contrast”``; each once."""
    missing = []
    for step in spec.steps:
        if step.output_type is not None and step.output_type not in registry.output_types:
            missing.append(f"the output type “{step.output_type}”")
        texts = [getattr(step, field) for field in STEP_EXPRESSIONS]
        texts += [getattr(audit, field) for audit in step.audits for field in AUDIT_EXPRESSIONS if field != "rule"]
        missing += [f"the function “{name}”" for name in _find_names(texts) if name not in registry.functions]
        rules: list[str | None] = [audit.rule for audit in step.audits]
        missing += [f"the audit “{name}”" for name in _find_names(rules) if name not in registry.audits]
    return list(dict.fromkeys(missing))


def _find_names(texts: list[str | None]) -> list[str]:
    return [text.removeprefix(PREFIX) for text in texts if text is not None and text.startswith(PREFIX)]
