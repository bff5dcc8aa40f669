"""Everything that the OpenAPI document says holds, for all requests and all callers.

Schemathesis reads the document and asks every operation with what fits it, with what just fits, and with what does
not: 2,000 examples for each role.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import response_schema_conformance

from runs.api.documentation import build_schema
from tests.api.asking import create_token, make_user
from tests.api.long_work import make_bulk_action, make_delivery, make_view
from tests.runs.pages.history_builders import make_retried_run
from tests.runs.webhooks.deliveries import make_endpoint
from tests.serving import serve

pytestmark = pytest.mark.nightly

DOCUMENT = json.loads(json.dumps(build_schema()))
OPERATIONS = sum(len(methods) for methods in DOCUMENT["paths"].values())
# A few operations have nothing to vary: of those there is one example.
EXAMPLES = math.ceil(2_200 / OPERATIONS)

ACCEPTED = ("2xx", "403", "404", "409", "429")

CONFIG = SchemathesisConfig.from_dict(
    {
        "generation": {"with-security-parameters": False, "max-examples": EXAMPLES, "database": "none"},
        "phases": {"stateful": {"enabled": False}},
        "checks": {
            # That a server can't stream is documented: this one is no ASGI server.
            "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501"]},
            # What is well formed may name a flow that there is not, or hold an input that doesn't fit it: it is refused
            # with 400 or 422. 304, 406, 412, 413 and 501 follow from headers, size and the server.
            "positive_data_acceptance": {
                "expected-statuses": [*ACCEPTED, "304", "400", "406", "412", "413", "422", "501"]
            },
            # What breaks a long bound may be larger than any body.
            "negative_data_rejection": {
                "expected-statuses": [*map(str, (400, 401, 403, 404, 406, 409, 411, 412, 413, 415, 422, 429))]
            },
        },
    }
)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)
SCHEMA.app = get_wsgi_application()

STREAM = "streamRunEvents"
SOCKET_CONFIG = SchemathesisConfig.from_dict(
    {
        "generation": {"with-security-parameters": False, "database": "none"},
        # This server can stream: 501 is no answer of it.
        "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400", "406", "413", "422"]}},
    }
)

KNOWN = {"flow": "colour-theme", "name": "colour-theme", "number": 1, "version": 1, "step": 1, "index": 1}
"""What there is for a test to find: values of parameters and of fields of bodies."""


@pytest.fixture
def one_connection(db: None) -> Iterator[None]:
    """Let requests leave the connection of the test open, as those of Django's own client do."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def roles(groups: None, settings: Any) -> Mapping[str, str]:
    """A token for each role; no user is throttled."""
    settings.TOOLFLOW_API_READS_PER_MINUTE = settings.TOOLFLOW_API_WRITES_PER_MINUTE = 1_000_000
    settings.TOOLFLOW_API_STRANGERS_PER_MINUTE = 1_000_000
    names = ("Viewer", "Operator", "Editor", "Administrator")
    return {name.lower(): create_token(make_user(name.lower(), name)) for name in names}


@pytest.fixture
def known(one_connection: None, roles: Mapping[str, str]) -> Mapping[str, Any]:
    return find_known()


def find_known() -> Mapping[str, Any]:
    """Values with which an operation finds something: a run with attempts and issues, and its flow."""
    run = make_retried_run(status="failed", blocking_step=1, blocking_attempt=2)
    return {
        **KNOWN,
        "run_id": run.pk,
        "id": run.pk,
        "flow": run.flow.name,
        "name": run.flow.name,
        "delivery_id": make_delivery(run).pk,
        "endpoint_id": make_endpoint("https://hooks.example.com/").pk,
        "action_id": make_bulk_action().pk,
        "view_id": make_view(make_user("vera"), is_shared=True).pk,
    }


def point_at_what_there_is(case: Any, known: Mapping[str, Any]) -> None:
    """Let a request that fits find something: no generator would guess the name of a flow."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for name in case.path_parameters or {}:
        if name in known:
            case.path_parameters[name] = known[name]
    if isinstance(case.body, dict) and "flow" in case.body:
        case.body = {**case.body, "flow": known["flow"]}
    if isinstance(case.body, dict) and "flow" in (case.body.get("filters") or ()):
        case.body = {**case.body, "filters": {**case.body["filters"], "flow": known["flow"]}}
    if "Prefer" in (case.headers or {}):
        # No worker executes runs here: there would be nothing to wait for.
        case.headers["Prefer"] = "wait=0"


@SCHEMA.parametrize()
@settings(suppress_health_check=list(HealthCheck))
def test_what_the_document_says_holds_for_every_user(
    case: Any, roles: Mapping[str, str], known: Mapping[str, Any]
) -> None:
    point_at_what_there_is(case, known)
    for role, token in roles.items():
        try:
            case.call_and_validate(headers={"Authorization": f"Bearer {token}"})
        except BaseException as error:
            error.add_note(f"Asked by the {role}.")
            raise


@pytest.mark.django_db(transaction=True)
def test_it_holds_over_a_socket_too(groups: None) -> None:
    """An ASGI server reads and streams in its own way: one role and one example for each operation."""
    token = create_token(make_user("olga", "Editor"))
    known = find_known()
    answered: dict[str, int] = {}

    def ask(case: Any) -> None:
        point_at_what_there_is(case, known)
        name = case.operation.definition.raw["operationId"]
        # In OpenAPI 3.1 a stream of events is a text; Schemathesis holds each event to be one.
        without: list[Any] = [response_schema_conformance] if name == STREAM else []
        headers = {"Authorization": f"Bearer {token}"}
        answer = case.call_and_validate(base_url=f"{root}/api/v1", headers=headers, excluded_checks=without)
        answered[name] = answer.status_code

    once = settings(
        max_examples=1,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with serve() as port:
        root = f"http://127.0.0.1:{port}"
        for found in schemathesis.openapi.from_dict(DOCUMENT, config=SOCKET_CONFIG).get_all_operations():
            once(given(case=found.ok().as_strategy())(ask))()
    assert answered.keys() == {method["operationId"] for path in DOCUMENT["paths"].values() for method in path.values()}
    assert answered[STREAM] == 200
