"""From documents to immutable versions."""

from __future__ import annotations

from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.db import connection

from flows.models import Flow, FlowVersion
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

SPEC = make_flow(title="Tea", description="Hot.")


def test_the_first_version_goes_live_and_later_ones_are_made_of_changes_only() -> None:
    ada = User.objects.create_user("ada")
    first = publish_flow(spec=SPEC, by=ada, note="A start.")
    flow = Flow.objects.get()
    assert (first.number, first.created_by, first.note, flow.live_version) == (1, ada, "A start.", first)
    assert (flow.name, flow.title, flow.description) == ("example", "Tea", "Hot.")
    assert publish_flow(spec=SPEC) == publish_flow(spec=SPEC, flow=flow) == first
    second = publish_flow(spec=make_flow(make_step(max_retries=0)))
    flow.refresh_from_db()
    assert (second.number, flow.live_version, flow.title, flow.description) == (2, first, "example", "")


@pytest.mark.django_db(transaction=True)
def test_many_who_publish_at_once_make_one_version() -> None:
    failures: list[Exception] = []

    def publish() -> None:
        try:
            publish_flow(spec=SPEC)
        except Exception as error:  # noqa: BLE001  # the assertion below shows it
            failures.append(error)
        finally:
            connection.close()

    threads = [Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [version.number for version in FlowVersion.objects.all()] == [1]
