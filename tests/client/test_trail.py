"""The audit trail on a terminal of somebody who may read it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from runs.models import TrailEntry
from tests.client.conftest import Terminal
from tests.client.stand_in import Reply, answer_json

pytestmark = pytest.mark.any_database


@pytest.fixture
def administrator(make_terminal: Callable[..., Terminal]) -> Terminal:
    """The terminal of an administrator."""
    return make_terminal("Administrator")


def make_entries(count: int) -> list[int]:
    return [
        TrailEntry.objects.create(
            actor_name="ada",
            token_name="nightly",
            address="192.0.2.1",
            action="run_started",
            object_kind="run",
            object_id=str(number),
            object_label=f"Tea #{number}",
            details={"flow": "tea", "count": 2},
            at=datetime(2026, 3, 1, 12, number, tzinfo=UTC),
        ).pk
        for number in range(1, count + 1)
    ]


def list_ids(terminal: Terminal, *arguments: str) -> list[int]:
    return [entry["id"] for entry in terminal.run("trail", "--actor", "ada", *arguments, "--json").json]


def test_entries_are_shown_the_newest_first(administrator: Terminal) -> None:
    keys = make_entries(2)
    done = administrator.run("trail", "--actor", "ada")
    header, newest, _ = done.out.splitlines()
    assert (done.status, header.split()) == (0, ["ENTRY", "AT", "BY", "ADDRESS", "ACTION", "ABOUT", "DETAILS"])
    cells = newest.split()
    assert cells[0] == str(keys[-1])
    assert " ".join(cells[3:]) == "ada (nightly) 192.0.2.1 run_started run Tea #2 flow: tea, count: 2"


def test_they_are_chosen_by_what_was_done_to_what(administrator: Terminal) -> None:
    first, second = make_entries(2)
    assert list_ids(administrator, "--limit", "1") == [second]
    assert list_ids(administrator, "--kind", "run", "--id", "1") == [first]
    assert list_ids(administrator, "--action", "run_cancelled,runs_started") == []
    assert list_ids(administrator, "--from", "2026-03-02") == []
    assert list_ids(administrator, "--to", "2026-03-01") == [second, first]
    done = administrator.run("trail", "--action", "danced")
    assert (done.status, "“danced” is no value of “action”" in done.err) == (3, True)


def test_a_script_reads_on_from_the_last_one_that_it_has(administrator: Terminal) -> None:
    keys = make_entries(5)
    assert list_ids(administrator, "--after", str(keys[0])) == keys[1:]
    assert list_ids(administrator, "--after", str(keys[0]), "--limit", "2") == keys[1:3]
    assert list_ids(administrator, "--after", str(keys[-1])) == []


def test_it_reads_on_over_several_pages(stand_in: Callable[..., Terminal]) -> None:
    known = {"at": "2026-03-01T12:00:00Z", "action": "signed_in", "object_kind": None, "details": {}}

    def page(keys: list[int], previous: str | None) -> Reply:
        return answer_json({"items": [{**known, "id": key} for key in keys], "next": None, "previous": previous})

    # A filter that finds little may stop looking early: then a page is empty, and not the last one.
    pages = [page([9, 8], "http://other/api/v1/trail?after=9"), page([], "http://other/?after=40"), page([44], None)]
    terminal = stand_in(*pages)
    done = terminal.run("trail", "--after", "7", "--json")
    assert [one["id"] for one in done.json] == [8, 9, 44]
    assert [asked.path for asked in terminal.asked] == [
        "/api/v1/trail?after=7&limit=20",
        "/api/v1/trail?after=9",
        "/api/v1/trail?after=40",
    ]


def test_whoever_administers_nothing_is_told_so(terminal: Terminal) -> None:
    done = terminal.run("trail")
    assert (done.status, done.out, done.err) == (
        3,
        "",
        "toolflow: Your account lacks the permission “runs.view_trailentry”.\n",
    )
