"""By what receivers check messages, over the API and on one's own account: who is told which secret."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import escape

from flows.models import Flow, WebhookSecretChange
from flows.webhook_secret import OVERLAP, WebhookSigner
from runs.models import IdempotentRequest, TokenScope, TrailEntry
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.documents import read
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


def test_everybody_who_may_start_runs_is_told_their_own(groups: None) -> None:
    found = {}
    for name in ("ada", "olga"):
        user = make_user(name, "Operator")
        found[name] = read(Script(make_token(user, TokenScope.RUN)), "webhook-secret")
        assert found[name] == {"secret": WebhookSigner.of_user(user.pk).secret, "earlier_until": None}
    assert found["ada"] != found["olga"]


def test_a_token_that_may_only_read_is_not_told(groups: None) -> None:
    user = make_user("ada", "Editor")
    problem = read_problem(Script(make_token(user, TokenScope.READ)).get("webhook-secret"))
    assert (problem["status"], "this needs a token with the scope “run”" in problem["detail"]) == (403, True)
    assert "whsec_" not in str(problem)
    problem = read_problem(Script(make_token(user, TokenScope.RUN)).get("flows/colour-theme/webhook-secret"))
    assert (problem["status"], "this needs a token with the scope “edit”" in problem["detail"]) == (403, True)


def test_that_of_a_flow_is_for_those_who_may_change_it(editor: Script, operator: Script) -> None:
    for name in ("one", "two"):
        flow: Flow = make_version(make_page_flow(name=name)).flow
        answer = editor.get(f"flows/{name}/webhook-secret")
        secret = WebhookSigner.of_flow(flow.pk).secret
        assert read(editor, f"flows/{name}/webhook-secret") == {"secret": secret, "earlier_until": None}
        assert answer["Cache-Control"] == "private, no-store"
    assert operator.get("flows/one/webhook-secret").status_code == 403
    assert editor.get("flows/nowhere/webhook-secret").status_code == 404
    assert not TrailEntry.objects.filter(details__icontains="whsec_").exists()


def test_one_s_own_account_shows_it_to_those_who_may_start_runs(groups: None) -> None:
    pages = {}
    for name, group in (("olga", "Operator"), ("vera", "Viewer")):
        user = make_user(name, group)
        client = Client()
        client.force_login(user)
        answer = client.get("/account/")
        pages[name] = answer.content.decode()
        assert (escape(WebhookSigner.of_user(user.pk).secret) in pages[name]) == (group == "Operator")
        assert "no-store" in answer["Cache-Control"]
    assert 'data-copies="webhook-secret"' in pages["olga"]
    assert "whsec_" not in pages["vera"] and "webhooks" not in pages["vera"].partition("<h1>")[2]


def make_signer(of_flow: bool) -> tuple[WebhookSigner, str]:
    """A flow, or who asks as an editor; and the address of that one's secret."""
    if of_flow:
        flow = make_version(make_page_flow(name="letters", title="Letters")).flow
        return WebhookSigner.of_flow(flow.pk), "flows/letters/webhook-secret"
    return WebhookSigner.of_user(User.objects.get(username="editor").pk), "webhook-secret"


def change(script: Script, path: str, body: Any = None) -> Any:
    """What a script is told that takes another secret."""
    answer: Any = script.post(f"{path}/change", body)
    assert answer.status_code == 200, answer.content
    return answer.json()


@pytest.mark.parametrize("of_flow", [True, False])
def test_a_script_changes_it_and_sees_how_long_the_one_of_before_counts(editor: Script, of_flow: bool) -> None:
    signer, path = make_signer(of_flow)
    before = signer.secret
    answer: Any = editor.post(f"{path}/change", {})
    assert (answer.status_code, answer["Cache-Control"]) == (200, "private, no-store")
    changed = answer.json()
    secrets = signer.read_secrets()
    assert (changed["secret"], secrets.earlier) == (secrets.current, [before]) and changed["secret"] != before
    row = WebhookSecretChange.objects.get()
    assert datetime.fromisoformat(changed["earlier_until"]) == row.changed_at + OVERLAP
    assert read(editor, path) == changed
    entry = TrailEntry.objects.get(action="webhook_secret_changed")
    assert (entry.actor_name, entry.object_label) == ("editor", "Letters" if of_flow else "editor")
    WebhookSecretChange.objects.update(changed_at=row.changed_at - timedelta(days=8))
    assert read(editor, path) == {"secret": changed["secret"], "earlier_until": None}
    # Nothing of before counts now: that another change ends nothing, nobody has to say.
    assert change(editor, path)["secret"] != changed["secret"]


@pytest.mark.parametrize("of_flow", [True, False])
def test_what_still_counts_is_ended_only_if_the_script_says_so(editor: Script, of_flow: bool) -> None:
    signer, path = make_signer(of_flow)
    first = signer.secret
    second = change(editor, path)
    for body in ({}, {"again": False}):
        problem = read_problem(editor.post(f"{path}/change", body))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:secret-changed-lately")
        until = f"{datetime.fromisoformat(second['earlier_until']):%Y-%m-%d %H:%M} UTC"
        assert problem["detail"] == (
            f"The secret was changed lately already: that of before counts until {until}, and another change ends it "
            "at once; say “again” if that is meant."
        )
    assert read(editor, path) == second and signer.read_secrets().earlier == [first]
    third = change(editor, path, {"again": True})
    assert signer.read_secrets().earlier == [second["secret"]] and third["secret"] == signer.secret
    assert TrailEntry.objects.filter(action="webhook_secret_changed").count() == 2


@pytest.mark.parametrize("of_flow", [True, False])
def test_a_change_that_is_sent_again_with_its_key_is_made_once(editor: Script, of_flow: bool) -> None:
    signer, path = make_signer(of_flow)
    first: Any = editor.post(f"{path}/change", {"again": True}, Idempotency_Key="rotate")
    second: Any = editor.post(f"{path}/change", {"again": True}, Idempotency_Key="rotate")
    assert (second.status_code, second.content) == (200, first.content)
    assert "Idempotency-Replayed" not in first and second["Idempotency-Replayed"] == "true"
    assert (second["Content-Type"], second["Cache-Control"]) == (first["Content-Type"], "private, no-store")
    assert WebhookSecretChange.objects.get().number == 1
    # It is answered the same after another change, too, and the secret is stored nowhere.
    editor.post(f"{path}/change", {"again": True}, Idempotency_Key="once more")
    assert editor.post(f"{path}/change", {"again": True}, Idempotency_Key="rotate").content == first.content
    assert first.json()["secret"] in signer.read_secrets().earlier
    assert "whsec_" not in str([*IdempotentRequest.objects.values_list(), *TrailEntry.objects.values_list()])


def test_of_two_scripts_in_the_same_moment_one_changes_it(editor: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    signer, path = make_signer(of_flow=False)
    first = signer.secret
    read_secrets = WebhookSigner.read_secrets

    def let_another_be_first(self: WebhookSigner) -> Any:
        found = read_secrets(self)
        monkeypatch.undo()
        assert self.change_secret(number=found.number)
        return found

    monkeypatch.setattr(WebhookSigner, "read_secrets", let_another_be_first)
    problem = read_problem(editor.post(f"{path}/change"))
    assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:secret-changed")
    assert signer.read_secrets().earlier == [first]


def test_what_a_body_can_not_say_is_named(editor: Script) -> None:
    for body, pointer in (({"agian": True}, "/agian"), ({"again": "yes"}, "/again"), ({"again": None}, "/again")):
        problem = read_problem(editor.post("webhook-secret/change", body))
        assert (problem["status"], problem["errors"][0]["pointer"]) == (422, pointer)
    assert editor.post("flows/nowhere/webhook-secret/change").status_code == 404
    assert not WebhookSecretChange.objects.exists()
