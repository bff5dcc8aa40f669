"""Webhook endpoints and deliveries over the API, and which addresses a run may name."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from runs.api import webhooks
from runs.api.documentation import build_schema
from runs.models import AuditEntry, TokenScope, WebhookDelivery, WebhookEndpoint, WebhookTry
from runs.webhooks.messages import derive_secret
from tests.api.asking import Script, create_token, list_wrong, make_user, read, read_json, read_type
from tests.api.long_work import ADDRESS, make_delivery
from tests.engine.builders import make_flow
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.webhooks.deliveries import make_ended_run, make_endpoint

pytestmark = pytest.mark.django_db

SHOWN = "https://hooks.example.com/…"


class TestEndpoints:
    def test_one_is_created_with_a_secret_that_is_shown_once(self, editor: Script) -> None:
        make_version(make_flow())
        answer = editor.post("webhook-endpoints", {"webhook_url": ADDRESS, "flow": "example"})
        created = read_json(answer, 201)
        row = WebhookEndpoint.objects.get()
        assert answer["Location"] == created["url"]
        assert created.pop("secret") == derive_secret(row)
        expected = {
            "id": row.pk, "webhook_url": ADDRESS, "flow": "example", "event_types": [], "is_enabled": True,
            "last_delivery": None, "created_at": created["created_at"],
            "url": f"http://testserver/api/v1/webhook-endpoints/{row.pk}",
        }  # fmt: skip
        assert created == expected == read(editor, f"webhook-endpoints/{row.pk}")
        assert read(editor, "webhook-endpoints")["items"] == [expected]
        for flow, status in (("example", 409), (None, 201), (None, 409)):
            assert editor.post("webhook-endpoints", {"webhook_url": ADDRESS, "flow": flow}).status_code == status

    def test_it_is_changed_and_deleted_and_that_is_logged(self, editor: Script) -> None:
        endpoint = make_endpoint(ADDRESS)
        delivery = WebhookDelivery.objects.create(endpoint=endpoint, event="webhook.test", url=ADDRESS)
        changed = {"is_enabled": False, "event_types": ["run.failed"]}
        answer = read_json(editor.ask("PATCH", f"webhook-endpoints/{endpoint.pk}", changed))
        assert answer | changed == answer and answer["webhook_url"] == ADDRESS
        assert answer["last_delivery"]["id"] == delivery.pk
        assert editor.ask("DELETE", f"webhook-endpoints/{endpoint.pk}").status_code == 204
        delivery.refresh_from_db()
        assert delivery.endpoint is None
        entries = AuditEntry.objects.filter(object_kind="webhookendpoint").order_by("pk")
        actions = [f"webhook_endpoint_{what}" for what in ("added", "changed", "deleted")]
        assert list(entries.values_list("action", flat=True)) == actions
        assert ADDRESS not in str(list(entries.values()))

    def test_what_others_change_meanwhile_stays(self, editor: Script, monkeypatch: pytest.MonkeyPatch) -> None:
        endpoint = make_endpoint(ADDRESS)
        save = webhooks._save

        def save_late(row: Any, fields: Any) -> None:
            WebhookEndpoint.objects.update(is_enabled=False)
            save(row, fields)

        monkeypatch.setattr(webhooks, "_save", save_late)
        answer = editor.ask("PATCH", f"webhook-endpoints/{endpoint.pk}", {"event_types": ["run.failed"]})
        assert (read_json(answer)["is_enabled"], answer.json()["event_types"]) == (False, ["run.failed"])

    def test_a_test_is_a_delivery_without_a_run_and_a_secret_is_rotated_twice_only_if_that_is_meant(
        self, editor: Script
    ) -> None:
        endpoint = make_endpoint(ADDRESS, is_enabled=False)
        document = read_json(editor.post(f"webhook-endpoints/{endpoint.pk}/test"), 202)
        assert (document["endpoint"], document["run"]) == (endpoint.pk, None)
        assert document["event"] == document["payload"]["type"] == "webhook.test"
        (item,) = read(editor, f"webhook-deliveries?endpoint={endpoint.pk}")["items"]
        assert item["id"] == document["id"]
        path = f"webhook-endpoints/{endpoint.pk}/rotate-secret"
        read_json(editor.post(path, {}))
        assert read_type(editor.post(path, {})) == (409, "secret-changed-lately")
        rotated = read_json(editor.post(path, {"again": True}))
        endpoint.refresh_from_db()
        assert rotated["secret"] == derive_secret(endpoint)


class TestDeliveries:
    def test_the_whole_document(self, operator: Script) -> None:
        run = make_ended_run()
        delivery = make_delivery(run, try_count=2, last_status=503)
        now = timezone.now()
        begun = {"delivery": delivery, "started_at": now - timedelta(seconds=2)}
        WebhookTry.objects.create(**begun, number=1)
        WebhookTry.objects.create(**begun, number=2, ended_at=now, status=503, problem="No.", response="full")
        document = read(operator, f"webhook-deliveries/{delivery.pk}")
        payload, tries = document.pop("payload"), document.pop("tries")
        assert read(operator, "webhook-deliveries")["items"] == [document]
        del document["created_at"], document["next_try_at"]
        assert document == {
            "id": delivery.pk, "message_id": delivery.message_id, "run": run.pk, "flow": run.flow.name,
            "endpoint": None, "event": "run.failed", "webhook_url": ADDRESS, "status": "waiting",
            "is_being_sent": False, "try_count": 2, "last_http_status": 503, "ended_at": None,
            "url": f"http://testserver/api/v1/webhook-deliveries/{delivery.pk}",
            "page_url": f"http://testserver/webhooks/{delivery.pk}/",
            "run_url": f"http://testserver/api/v1/runs/{run.pk}",
        }  # fmt: skip
        assert (payload["type"], payload["data"]["id"]) == ("run.failed", run.pk)
        shown = [[one[name] for name in ("number", "duration", "http_status", "problem", "response")] for one in tries]
        assert shown == [[1, None, None, None, ""], [2, 2.0, 503, "No.", "full"]]

    def test_filters_and_pages(self, viewer: Script) -> None:
        one, two = (make_version(make_page_flow(name=name)) for name in ("one", "two"))
        states = ("waiting", "delivered", "failed")
        rows = [make_delivery(make_ended_run(version), state=state) for version in (one, two) for state in states]
        ids = [row.pk for row in rows]
        cases = {
            "": ids[::-1],
            "?status=failed": [ids[5], ids[2]],
            "?status=failed,waiting&flow=two": [ids[5], ids[3]],
            "?status=failed&status=waiting&status=delivered&flow=one": ids[2::-1],
            f"?run={rows[0].run_id}": [ids[0]],
            f"?before={ids[2]}": [ids[1], ids[0]],
        }
        for query, expected in cases.items():
            assert [item["id"] for item in read(viewer, f"webhook-deliveries{query}")["items"]] == expected, query

    def test_one_is_sent_again_but_for_one_that_is_being_sent(self, operator: Script) -> None:
        delivery = make_delivery(make_ended_run(), state="failed", try_count=8, ended_at=timezone.now())
        path = f"webhook-deliveries/{delivery.pk}/send-again"
        answer = operator.post(path)
        assert (answer.status_code, answer["Retry-After"]) == (202, "1")
        assert json.loads(answer.content)["status"] == "waiting"
        assert AuditEntry.objects.get(action="webhook_sent_again").object_id == str(delivery.pk)
        WebhookDelivery.objects.update(sending_until=timezone.now() + timedelta(seconds=30))
        assert read_type(operator.post(path)) == (409, "being-sent")


@pytest.mark.parametrize(
    ("group", "scope", "address"),
    [
        ("Viewer", TokenScope.EDIT, SHOWN),
        ("Operator", TokenScope.READ, SHOWN),
        ("Operator", TokenScope.RUN, ADDRESS),
        ("Editor", TokenScope.READ, SHOWN),
        ("Editor", TokenScope.EDIT, ADDRESS),
    ],
)
def test_a_caller_who_starts_no_runs_is_shown_the_host_of_an_address_only(
    groups: None, group: str, scope: TokenScope, address: str
) -> None:
    run = make_ended_run(webhook_url=ADDRESS)
    make_delivery(run)
    make_endpoint(ADDRESS)
    script = Script(create_token(make_user("ada", group), scope))
    shown = [read(script, path) for path in (f"runs/{run.pk}", f"runs/{run.pk}?attempts=none")]
    lists = ["runs", "webhook-deliveries", *(["webhook-endpoints"] if group == "Editor" else [])]
    shown += [read(script, path)["items"][0] for path in lists]
    assert {one["webhook_url"] for one in shown} == {address}


@pytest.mark.parametrize(
    ("address", "problems", "is_described"),
    [
        ("https://[2001:db8::1]:8443/hook", [], True),
        ("http://my_receiver:8080/a/b?c=d&e=%C3%BC#f", [], True),
        ("https://xn--mnchen-3ya.de/", [], True),
        ("http://[E:]/", ["/webhook_url"], None),
        ("https://[::1::]:8080/hook", ["/webhook_url"], None),
        ("http://example.com", ["/webhook_url"], True),
        ("https://169.254.169.254/latest/", ["/webhook_url"], True),
        ("https://example.com/?)dl:QH{xP0", ["/webhook_url"], False),
        ("https://example.com/50%", ["/webhook_url"], False),
        ("https://münchen.de/", ["/webhook_url"], False),
    ],
)
def test_a_run_names_an_address_that_webhooks_can_be_sent_to_and_the_document_describes(
    operator: Script, settings: Any, address: str, problems: list[str], is_described: bool | None
) -> None:
    settings.TOOLFLOW_WEBHOOK_ALLOW = ["[2001:db8::1]:8443", "my_receiver:8080"]
    make_version(make_flow())
    answer = operator.post("runs", {"flow": "example", "input": {"topic": "tea"}, "webhook_url": address})
    assert ([] if answer.status_code == 202 else list_wrong(answer, 422)) == problems
    field = build_schema()["components"]["schemas"]["NewRun"]["properties"]["webhook_url"]
    (pattern,) = (one["pattern"] for one in field["anyOf"] if "pattern" in one)
    assert is_described in (None, re.search(pattern, address) is not None)
