"""Clients of the API find the paths, parameters, statuses, fields and types that they were written for."""

from __future__ import annotations

from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import pytest
import yaml

from tests.contract.golden import IS_UPDATING, read_golden, write_golden
from tests.contract.openapi import Comparison, reduce_document
from tests.contract.site import Api, read_text

pytestmark = pytest.mark.django_db

PATTERN_CHARACTERS = str.maketrans({"[": "[[]"})
"""Of the patterns in ``intended_changes.yaml`` only ``*`` and ``?`` mean something."""


def test_nothing_is_missing_that_clients_use_but_for_what_was_removed_on_purpose() -> None:
    response = Api().send("GET", "schema", headers={"Accept": "application/yaml"})
    new = reduce_document(yaml.load(read_text(response), yaml.CSafeLoader))
    if IS_UPDATING:
        write_golden("openapi.yaml", new)
    intended = read_golden("intended_changes.yaml") or []
    used = set()
    unexpected = []
    for difference in Comparison(read_golden("openapi.yaml"), new).find_differences():
        matching = [one for one in intended if fnmatchcase(difference, one.translate(PATTERN_CHARACTERS))]
        used.update(matching)
        unexpected += [] if matching else [difference]
    assert unexpected == []
    assert [one for one in intended if one not in used] == [], "these did not happen"


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda new: new["paths"]["/runs/{run_id}"].pop("GET"), "GET /runs/{run_id}: removed"),
        (lambda new: new["paths"]["/runs"]["GET"]["parameters"].pop("query status"), "GET /runs query status: removed"),
        (lambda new: new["paths"]["/runs"]["POST"]["problems"].remove(409), "POST /runs 409: removed"),
        (lambda new: new["schemas"]["NewRun"].pop("labels"), "POST /runs application/json .labels: removed"),
        (lambda new: new["schemas"]["NewRun"].update({"by!": "string"}), "POST /runs application/json .by: new and"),
        (lambda new: new["schemas"]["Issue"].update({"code!": "integer"}), ".code: string is integer"),
        (lambda new: new["schemas"]["Severity"].update({"=": ["low"]}), "without critical, high, medium"),
    ],
)
def test_a_change_that_breaks_clients_is_found(change: Any, difference: str) -> None:
    old = read_golden("openapi.yaml")
    new = deepcopy(old)
    change(new)
    found = Comparison(old, new).find_differences()
    assert any(difference in line for line in found), found
