"""What an installation has, for scripts that watch it or write flows for it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from flows.engine.plugins import registry
from runs.models import Worker
from tests.api.asking import Script, read
from tests.engine.builders import make_step
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db


def test_each_worker_is_listed_with_what_it_does(viewer: Script) -> None:
    make_worker(host="one", pid=7, slots=4, in_flight=3)
    make_worker(host="two", pid=8, is_stopping=True)
    lost = make_worker(host="three", pid=9)
    Worker.objects.filter(pk=lost.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
    make_run()
    found = read(viewer, "workers")
    workers = {item["host"]: item for item in found["items"]}
    statuses = {host: item["status"] for host, item in workers.items()}
    assert statuses == {"one": "working", "two": "stopping", "three": "silent"}
    first = workers["one"]
    assert (first["pid"], first["version"], first["slots"], first["in_flight"]) == (7, "0.1.0", 4, 3)
    assert workers["three"]["silent_for"] >= 3_590 and workers["three"]["running_for"] >= 0
    assert (found["queue"]["ready"], found["queue"]["is_unattended"]) == (1, False)
    assert found["queue"].keys() == read(viewer, "statistics/overview")["queue"].keys()


def test_what_flows_can_name_is_listed_and_what_is_missing_with_its_place(viewer: Script) -> None:
    make_version(make_page_flow(make_step(1, compute="python:nowhere")))
    found = read(viewer, "plugins")
    for kind in ("output_types", "audits", "functions"):
        assert [one["name"] for one in found[kind]] == sorted(getattr(registry, kind))
    assert found["output_types"] and found["audits"], "The tests load the plug-ins of the examples."
    kind = found["output_types"][0]
    assert kind["output_schema"]["type"] == "object" and kind["problems"] == []
    audits = {one["name"]: one for one in found["audits"]}
    for name, audit in registry.audits.items():
        assert audits[name]["is_async"] == audit.is_async
        assert not audit.unknown_parameters(frozenset(audits[name]["parameters"]))
    (missing,) = found["missing"]
    assert missing.pop("place").startswith("step 1")
    assert missing == {"kind": "function", "name": "nowhere", "flow": "colour-theme", "is_live": True}
