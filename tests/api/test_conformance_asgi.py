"""What the OpenAPI document says holds under an ASGI server, too, which reads and streams in its own way.

One role and one example for each operation: what operations answer is for ``test_conformance``.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.api.asking import create_token, make_user
from tests.api.test_conformance import ACCEPTED, DOCUMENT, find_known, point_at_what_there_is
from tests.serving import serve

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.nightly]

PATIENCE = 30.0
STREAM = "streamRunEvents"
CONFIG = SchemathesisConfig.from_dict(
    {
        "generation": {"with-security-parameters": False, "database": "none"},
        "checks": {
            # This server can stream: 501 is no answer of it.
            "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "406", "413", "422"]},
        },
    }
)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)


def test_what_the_document_says_holds_under_an_asgi_server(groups: None) -> None:
    token = create_token(make_user("olga", "Editor"))
    known = find_known()
    answered: dict[str, int] = {}

    def ask(case: Any) -> None:
        point_at_what_there_is(case, known)
        if "Prefer" in (case.headers or {}):
            # Nobody executes runs here: there would be nothing to wait for.
            case.headers["Prefer"] = "wait=0"
        name = case.operation.definition.raw["operationId"]
        # In OpenAPI 3.1 a stream of events is a text; Schemathesis holds each event to be one.
        without: list[Any] = [response_schema_conformance] if name == STREAM else []
        headers = {"Authorization": f"Bearer {token}"}
        answer = case.call_and_validate(base_url=f"{root}/api/v1", headers=headers, excluded_checks=without)
        answered[name] = answer.status_code

    with serve() as port:
        root = f"http://127.0.0.1:{port}"
        for found in SCHEMA.get_all_operations():
            operation = found.ok()
            once = settings(
                max_examples=1,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            once(given(case=operation.as_strategy())(ask))()
    assert answered.keys() == {method["operationId"] for path in DOCUMENT["paths"].values() for method in path.values()}
    assert answered[STREAM] == 200
