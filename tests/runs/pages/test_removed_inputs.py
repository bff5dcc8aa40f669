"""What retention removed is told apart from what was empty: in comparisons, exports and downloads."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.test import Client

from runs.models import Run
from runs.retention.purging import remove_outputs
from tests.engine.builders import make_attempt
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

SAME = "The same input"


def make_removed(**fields: Any) -> Run:
    run = make_stored_run(make_attempt(1, 1, output={"text": "Private words."}), **fields)
    remove_outputs([run.pk])
    return run


def compare(client: Client, left: Run, right: Run) -> str:
    return read_words(get_page(client, f"/runs/compare/?a={left.pk}&b={right.pk}"))


def test_two_removed_inputs_are_not_called_the_same(viewer: Client) -> None:
    left, right = make_removed(), make_removed()
    words = compare(viewer, left, right)
    assert f"Removed by the retention policy: the inputs of #{left.pk} and #{right.pk}." in words
    assert SAME not in words
    assert "Final outputs Removed by the retention policy." in words


def test_a_removed_input_is_not_compared_with_one_that_is_there(viewer: Client) -> None:
    removed, there = make_removed(), make_stored_run(make_attempt(1, 1), input={"topic": "tea"})
    for left, right in ((removed, there), (there, removed)):
        words = compare(viewer, left, right)
        assert f"Removed by the retention policy: the input of #{removed.pk}." in words
        assert SAME not in words and "topic" not in words
        assert f"Removed by the retention policy: the output of #{removed.pk}." in words


def test_inputs_without_any_field_are_the_same(viewer: Client) -> None:
    assert SAME in compare(viewer, make_stored_run(input={}), make_stored_run(input={}))


def test_its_cell_in_an_export_is_empty(viewer: Client) -> None:
    make_removed()
    make_stored_run(input={})
    answer: Any = viewer.get("/runs/export/csv")
    text = answer.getvalue().decode().removeprefix("\ufeff")
    assert [row["input"] for row in csv.DictReader(io.StringIO(text, newline=""))] == ["{}", ""]


def test_there_is_nothing_to_download(viewer: Client) -> None:
    removed, empty = make_removed(), make_stored_run(input={})
    assert viewer.get(f"/runs/{removed.pk}/steps/0/attempts/1/?download").status_code == 404
    assert viewer.get(f"/runs/{empty.pk}/steps/0/attempts/1/?download").content == b"{}"
