"""The secret by which receivers of a flow's webhook check messages, over the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from flows.models import WebhookSecretChange
from flows.webhook_secret import OVERLAP, WebhookSigner
from runs.models import IdempotentRequest, TokenScope, TrailEntry
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.documents import read
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db


PATH = "flows/letters/webhook-secret"


@pytest.fixture
def signer() -> WebhookSigner:
    """A flow, whose secret is asked for."""
    return WebhookSigner.of_flow(make_version(make_page_flow(name="letters", title="Letters")).flow_id)


def test_it_is_for_those_who_may_change_the_flow(editor: Script, operator: Script, signer: WebhookSigner) -> None:
    answer = editor.get(PATH)
    assert read(editor, PATH) == {"secret": signer.secret, "earlier_until": None}
    assert answer["Cache-Control"] == "private, no-store"
    assert operator.get(PATH).status_code == 403
    assert editor.get("flows/nowhere/webhook-secret").status_code == 404
    assert not TrailEntry.objects.filter(details__icontains="whsec_").exists()


def test_a_token_of_a_lesser_scope_is_refused(groups: None, signer: WebhookSigner) -> None:
    problem = read_problem(Script(make_token(make_user("ada", "Editor"), TokenScope.RUN)).get(PATH))
    assert (problem["status"], "this needs a token with the scope “edit”" in problem["detail"]) == (403, True)
    assert "whsec_" not in str(problem)


def change(script: Script, body: Any = None) -> Any:
    """What a script is told that takes another secret."""
    answer: Any = script.post(f"{PATH}/change", body)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_script_changes_it_and_sees_how_long_the_one_of_before_counts(editor: Script, signer: WebhookSigner) -> None:
    before = signer.secret
    answer: Any = editor.post(f"{PATH}/change", {})
    assert (answer.status_code, answer["Cache-Control"]) == (200, "private, no-store")
    changed = answer.json()
    secrets = signer.read_secrets()
    assert (changed["secret"], secrets.earlier) == (secrets.current, [before]) and changed["secret"] != before
    row = WebhookSecretChange.objects.get()
    assert datetime.fromisoformat(changed["earlier_until"]) == row.changed_at + OVERLAP
    assert read(editor, PATH) == changed
    entry = TrailEntry.objects.get(action="webhook_secret_changed")
    assert (entry.actor_name, entry.object_label) == ("editor", "Letters")
    WebhookSecretChange.objects.update(changed_at=row.changed_at - timedelta(days=8))
    assert read(editor, PATH) == {"secret": changed["secret"], "earlier_until": None}
    # Nothing of before counts now: that another change ends nothing, nobody has to say.
    assert change(editor)["secret"] != changed["secret"]


def test_what_still_counts_is_ended_only_if_the_script_says_so(editor: Script, signer: WebhookSigner) -> None:
    first = signer.secret
    second = change(editor)
    for body in ({}, {"again": False}):
        problem = read_problem(editor.post(f"{PATH}/change", body))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:secret-changed-lately")
        until = f"{datetime.fromisoformat(second['earlier_until']):%Y-%m-%d %H:%M} UTC"
        assert problem["detail"] == (
            f"The secret was changed lately already: that of before counts until {until}, and another change ends it "
            "at once; say “again” if that is meant."
        )
    assert read(editor, PATH) == second and signer.read_secrets().earlier == [first]
    third = change(editor, {"again": True})
    assert signer.read_secrets().earlier == [second["secret"]] and third["secret"] == signer.secret
    assert TrailEntry.objects.filter(action="webhook_secret_changed").count() == 2


def test_a_change_that_is_sent_again_with_its_key_is_made_once(editor: Script, signer: WebhookSigner) -> None:
    first: Any = editor.post(f"{PATH}/change", {"again": True}, Idempotency_Key="rotate")
    second: Any = editor.post(f"{PATH}/change", {"again": True}, Idempotency_Key="rotate")
    assert (second.status_code, second.content) == (200, first.content)
    assert "Idempotency-Replayed" not in first and second["Idempotency-Replayed"] == "true"
    assert (second["Content-Type"], second["Cache-Control"]) == (first["Content-Type"], "private, no-store")
    assert WebhookSecretChange.objects.get().number == 1
    # It is answered the same after another change, too, and the secret is stored nowhere.
    editor.post(f"{PATH}/change", {"again": True}, Idempotency_Key="once more")
    assert editor.post(f"{PATH}/change", {"again": True}, Idempotency_Key="rotate").content == first.content
    assert first.json()["secret"] in signer.read_secrets().earlier
    assert "whsec_" not in str([*IdempotentRequest.objects.values_list(), *TrailEntry.objects.values_list()])


def test_of_two_scripts_in_the_same_moment_one_changes_it(
    editor: Script, signer: WebhookSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = signer.secret
    read_secrets = WebhookSigner.read_secrets

    def let_another_be_first(self: WebhookSigner) -> Any:
        found = read_secrets(self)
        monkeypatch.undo()
        assert self.change_secret(number=found.number)
        return found

    monkeypatch.setattr(WebhookSigner, "read_secrets", let_another_be_first)
    problem = read_problem(editor.post(f"{PATH}/change"))
    assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:secret-changed")
    assert signer.read_secrets().earlier == [first]


def test_what_a_body_can_not_say_is_named(editor: Script, signer: WebhookSigner) -> None:
    for body, pointer in (({"agian": True}, "/agian"), ({"again": "yes"}, "/again"), ({"again": None}, "/again")):
        problem = read_problem(editor.post(f"{PATH}/change", body))
        assert (problem["status"], problem["errors"][0]["pointer"]) == (422, pointer)
    assert editor.post("flows/nowhere/webhook-secret/change").status_code == 404
    assert not WebhookSecretChange.objects.exists()
