"""By what receivers check messages, over the API and on one's own account: who is told which secret."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils.html import escape

from flows.models import Flow
from flows.webhook_secret import WebhookSigner
from runs.models import TokenScope, TrailEntry
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
        assert found[name] == {"secret": WebhookSigner.of_user(user.pk).secret}
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
        assert read(editor, f"flows/{name}/webhook-secret") == {"secret": WebhookSigner.of_flow(flow.pk).secret}
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
