"""Where model calls go: where the environment says, and nowhere that a user, a flow, a request or an answer names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import models
from django.test import Client

from flows.engine.errors import ProblemsError
from flows.engine.spec import FlowSpec
from flows.flow_file import render_flow
from runs.models import Attempt, Run
from runs.tokens import create_token
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain
from tests.runs.webhooks.receiver import Receiver, Reply

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "sk-planted-3Vt8QmZr5Yx"
NAMES = ("base_url", "api_base", "url", "endpoint", "host", "proxy", "organization", "provider", "extra_headers")
"""What other programs call the address of a provider, or what steers a call."""


@pytest.fixture
def trap() -> Iterator[Receiver]:
    """A server that must receive nothing."""
    found = Receiver()
    yield found
    found.stop()


@pytest.fixture
def provider(model_server: ModelServer, settings: Any) -> ModelServer:
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    settings.TOOLFLOW_OPENAI_API_KEY = KEY
    return model_server


@pytest.fixture
def script() -> Client:
    """A user who may do everything, over the API."""
    ada = User.objects.create_superuser("ada")
    _, token = create_token(user=ada, name="script", scope="edit", lifetime=None)
    return Client(headers={"Authorization": f"Bearer {token}"})


def post(client: Client, path: str, body: Any, **headers: str) -> Any:
    return client.post(f"/api/v1/{path}", json.dumps(body), content_type="application/json", headers=headers)


def places(document: Any, path: str = "") -> Iterator[str]:
    """All objects of a document whose fields ToolFlow names; schemas and models' settings may hold anything."""
    if isinstance(document, dict):
        yield path
        for name, value in document.items():
            if name not in {"input_schema", "output_schema", "examples"}:
                yield from places(value, f"{path}/{name}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from places(value, f"{path}/{index}")


def find(document: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        document = document[int(part) if isinstance(document, list) else part]
    return document


FULL = make_flow(
    make_step(audits=[{"name": "Long", "rule": "size(output.text) > 0", "message": "'Too short.'"}]), title="Example"
).to_document()


@pytest.mark.parametrize("name", NAMES)
def test_a_flow_has_no_field_for_it_wherever_it_is_put(name: str, script: Client) -> None:
    for path in places(FULL):
        document = json.loads(json.dumps(FULL))
        find(document, path)[name] = "http://127.0.0.1:9/v1"
        with pytest.raises(ProblemsError, match=name):
            FlowSpec.from_document(document)
    # The flow itself, its step and the step's audit.
    assert list(places(FULL)) == ["", "/steps/0", "/steps/0/audits/0"]
    text = render_flow(FlowSpec.from_document(FULL)).replace("\nsteps:", f"\n{name}: http://127.0.0.1:9/v1\nsteps:")
    answer = script.post("/api/v1/flows", text, content_type="application/yaml")
    assert answer.status_code in {400, 422} and name in answer.content.decode()


def test_no_row_holds_an_address_but_those_of_webhooks() -> None:
    found = {
        f"{model._meta.model_name}.{field.name}"
        for app in ("flows", "runs")
        for model in apps.get_app_config(app).get_models()
        for field in model._meta.get_fields()
        if isinstance(field, models.URLField) or {*field.name.split("_")} & {"url", "host", "endpoint", "proxy", "base"}
    }
    deliveries = {f"webhookdelivery.{name}" for name in ("endpoint", "url", "host")}
    versions = {"flowdraft.base_version", "backtest.base_version"}
    # The worker's is the name of a machine that runs came to.
    assert found == {"run.webhook_url", "webhookendpoint.url", *deliveries, "worker.host", *versions}


def test_calls_go_where_the_environment_says_whatever_a_request_holds(
    provider: ModelServer, trap: Receiver, script: Client
) -> None:
    make_version(make_flow(make_step()))
    address = trap.url("/v1")
    values = dict.fromkeys(NAMES, address)
    hostile = post(
        script,
        "runs",
        {"flow": "example", "input": values, "labels": [address[:40]], "metadata": values},
        **{"OpenAI-Base-URL": address, "X-Forwarded-Host": f"127.0.0.1:{trap.port}", "Forwarded": f"host={address}"},
    )
    assert hostile.status_code == 202
    drain()
    assert Run.objects.get().status == "succeeded" and trap.received == []
    assert len(provider.app.calls) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_names_one_is_refused(script: Client, name: str) -> None:
    make_version(make_flow(make_step()))
    one = {"input": {}, name: "http://127.0.0.1:9/v1"}
    for path, body in (("runs", {"flow": "example", **one}), ("runs/bulk", {"flow": "example", "runs": [one]})):
        answer = post(script, path, body)
        assert answer.status_code in {400, 422} and name in answer.content.decode()
    assert not Run.objects.exists()


def test_the_name_of_a_model_is_a_name_however_much_it_looks_like_an_address(
    provider: ModelServer, trap: Receiver
) -> None:
    address = f"127.0.0.1:{trap.port}"
    for model in (trap.url("/v1"), f"@{address}/v1", f"../../{trap.url()}", f"x\r\nHost: {address}"):
        make_run(make_version(make_flow(make_step(model=model, max_retries=0))))
    drain()
    assert {run.status for run in Run.objects.all()} == {"succeeded"}
    assert trap.received == [] and len(provider.app.calls) == 4


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["{url}", "//127.0.0.1:{port}/v1/chat/completions"])
def test_a_redirect_of_the_provider_is_followed_nowhere(
    provider: ModelServer, trap: Receiver, settings: Any, status: int, place: str
) -> None:
    redirecting = Receiver()
    redirecting.reply(Reply(status=status, headers={"location": place.format(url=trap.url(), port=trap.port)}))
    settings.TOOLFLOW_OPENAI_BASE_URL = redirecting.url("/v1")
    make_run(make_version(make_flow(make_step(max_retries=0))))
    drain()
    redirecting.stop()
    # The key was where it belongs, and is nowhere else.
    assert [one.headers["authorization"] for one in redirecting.received] == [f"Bearer {KEY}"]
    assert trap.received == []
    assert Run.objects.get().status == "errored"
    assert KEY not in str(list(Attempt.objects.values_list()))
