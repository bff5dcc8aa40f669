"""How the API is described: what `drf-spectacular` makes the OpenAPI document by."""

from __future__ import annotations

from typing import Any

OPENAPI: dict[str, Any] = {
    "OAS_VERSION": "3.1.1",
    "TITLE": "ToolFlow",
    "VERSION": "1",
    "DESCRIPTION": (
        "Runs, flows and statistics, as on the pages of ToolFlow, for scripts. "
        "Start with the guide “Automate ToolFlow”.\n\n"
        "Sign in with `Authorization: Bearer tf_…`. Bodies are JSON in which unknown fields are errors, as are unknown "
        "query parameters. Times are ISO 8601 in UTC, costs are decimal texts in USD, what is absent is `null`. "
        "Whatever can’t be done is answered with a problem document (RFC 9457)."
    ),
    "LICENSE": {"name": "MIT", "identifier": "MIT"},
    "TAGS": [
        {"name": "Runs", "description": "Start runs, follow them, and read what was produced and what was wrong."},
        {"name": "Flows", "description": "What may run: flows and their versions, as documents like flow files."},
        {"name": "Bulk actions", "description": "Cancel many runs, or run many again: chosen ones, or all that match."},
        {
            "name": "Webhooks",
            "description": "What ToolFlow sends to those who asked, what came of it, and sending it again.",
        },
        {"name": "Saved views", "description": "Filters of the list of runs that users keep under a name."},
        {"name": "Trail", "description": "Who did what, when and from where."},
        {"name": "Statistics", "description": "Figures of flows and audits, and what models used."},
        {"name": "Installation", "description": "Worker processes, and the plug-ins that flows can name."},
        {"name": "Documentation", "description": "This description."},
    ],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SCHEMA_PATH_PREFIX_TRIM": True,
    "ENUM_SUFFIX": "",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "RunStatus": "runs.models.RunStatus.values",
        "EndReason": "runs.models.EndReason.values",
        "BulkKind": "runs.models.BulkKind.values",
        "WorkState": "runs.models.WorkState.values",
        "DeliveryState": "runs.models.DeliveryState.values",
        "TokenScope": "runs.models.TokenScope.values",
        "Kind": "runs.api.schema_completion.CHANGE_KINDS",
        "Severity": "runs.api.schema_completion.SEVERITIES",
        "Outcome": "runs.api.schema_completion.OUTCOMES",
    },
    # The reference page loads its scripts and styles from this installation, and asks no validator elsewhere.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None},
    "POSTPROCESSING_HOOKS": [
        "runs.api.schema_completion.know_choices_by_values",
        "drf_spectacular.hooks.postprocess_schema_enums",
        "runs.api.schema_completion.complete_schema",
    ],
}
