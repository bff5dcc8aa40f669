"""Scripts that save the same flow in the same moment: no user's work is lost, and answers are true."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.http import HttpResponse

from flows.models import Flow, FlowVersion
from tests.api.asking import Script, ask_at_once, create_token, make_user
from tests.engine.builders import make_flow, make_step
from tests.flows.loading import load_flow

pytestmark = [pytest.mark.sql, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("groups")]

SCRIPTS = 8


def make_document(retries: int = 3) -> dict[str, Any]:
    return make_flow(make_step(max_retries=retries), title="Tea").to_document()


def send_at_once(send: Callable[[Script, int], HttpResponse]) -> list[Any]:
    """The answers to several scripts that ask in the same moment, each with its number."""
    token = create_token(make_user("editor", "Editor"))
    return ask_at_once([partial(send, Script(token), number) for number in range(SCRIPTS)])


def test_one_of_many_pipelines_creates_the_flow_that_all_of_them_put() -> None:
    answers = send_at_once(lambda script, number: script.put("flows/example", make_document()))
    assert sorted(answer.status_code for answer in answers) == [200] * (SCRIPTS - 1) + [201]
    made = [answer.json()["made_version"] for answer in answers]
    assert sorted(made, key=str) == [1] + [None] * (SCRIPTS - 1)


def test_of_many_who_change_what_they_read_one_does() -> None:
    tag = f'"{load_flow(document=make_document()).digest}"'
    answers = send_at_once(lambda script, number: script.put("flows/example", make_document(number + 10), If_Match=tag))
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * (SCRIPTS - 1)
    assert Flow.objects.get().versions.count() == 2


def test_without_a_condition_every_user_gets_a_version() -> None:
    load_flow(document=make_document())
    answers = send_at_once(
        lambda script, number: script.put("flows/example?make_live=true", make_document(number + 10))
    )
    assert sorted(answer.json()["made_version"] for answer in answers) == list(range(2, SCRIPTS + 2))
    assert Flow.objects.get().live_version == FlowVersion.objects.get(number=SCRIPTS + 1)
