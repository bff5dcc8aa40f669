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
        {"name": "Bulk actions", "description": "Cancel or re-run many runs: selected ones, or all that match."},
        {"name": "Backtests", "description": "What another definition of a flow would have made of its ended runs."},
        {
            "name": "Webhooks",
            "description": "Messages to webhook endpoints, their deliveries, and sending one again.",
        },
        {"name": "Saved views", "description": "Named filters of the list of runs."},
        {"name": "Trail", "description": "Recorded actions: who, what, when and from where."},
        {
            "name": "Statistics",
            "description": "Figures of flows and audits, and what models used. Rates "
            "are fractions of one; costs are null where no price is known, and of simulated runs.",
        },
        {"name": "Installation", "description": "Worker processes, and the plug-ins that flows can name."},
        {"name": "Documentation", "description": "This description."},
    ],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SCHEMA_PATH_PREFIX_TRIM": True,
    # How users of the pages and tokens sign in; no view has another way.
    "AUTHENTICATION_WHITELIST": [],
    "SECURITY": [{"token": []}, {"session": []}],
    "APPEND_COMPONENTS": {
        "securitySchemes": {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token from the page “API tokens”, or from `manage.py create_token`. Its scope is "
                "`read`, `run` or `edit`; the permissions of its owner apply as well.",
            },
            "session": {
                "type": "apiKey",
                "in": "cookie",
                "name": "sessionid",
                "description": "The cookie of a user who is signed in on the pages. Requests other than GET also send "
                "the header `X-CSRFToken`.",
            },
        }
    },
    # The reference page loads its scripts and styles from this installation, and asks no validator elsewhere.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None},
    "POSTPROCESSING_HOOKS": ["runs.api.documentation.complete_schema"],
}
