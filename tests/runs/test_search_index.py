"""The words that are kept of runs: how many, for how long, and how they are looked up among very many runs."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from runs.models import Run
from runs.retention.removal import remove_outputs
from runs.run_filters import finding
from runs.search import Hits, documents, index_runs, list_matching, read_query, reindex_runs
from runs.search.documents import Document
from tests.engine.builders import NOON, make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.searching import search_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

needs_postgresql = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="FTS5 finds what PostgreSQL has to look for"
)


def store(*texts: str) -> list[int]:
    ids = [make_stored_run(input={"text": text}).pk for text in texts]
    index_runs(ids)
    Run.objects.filter(pk__in=ids).update(is_counted=True)
    return ids


def find(text: str) -> list[int]:
    return search_runs(read_query(text))


def count_kept() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs_searchdocument")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize(
    "delete",
    [lambda run: run.delete(), lambda run: Run.objects.filter(pk=run.pk).delete(), lambda run: delete_by_hand(run.pk)],
    ids=["a run", "a query of runs", "SQL"],
)
def test_the_words_of_a_run_go_with_it(delete: Callable[[Run], Any]) -> None:
    gone, stays = store("tea", "tea")
    delete(Run.objects.get(pk=gone))
    assert find("tea") == [stays]
    assert count_kept() == 1


def delete_by_hand(run_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM runs_run WHERE id = %s", [run_id])


def test_a_run_that_is_indexed_again_is_found_by_what_it_holds_now() -> None:
    (run_id,) = store("tea")
    Run.objects.filter(pk=run_id).update(input={"text": "coffee"})
    index_runs([run_id])
    assert (find("tea"), find("coffee"), count_kept()) == ([], [run_id], 1)


def test_rebuilding_makes_all_words_anew_and_goes_on_where_it_was_stopped() -> None:
    first, second, third = store("tea", "tea", "tea")
    uncounted = make_stored_run(input={"text": "tea"}).pk
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM runs_searchdocument")
    assert find("tea") == []

    assert reindex_runs(above=0, limit=1) == [first]
    out = StringIO()
    call_command("rebuild_search", "--from", str(third), stdout=out)
    assert find("tea") == [third, first]
    assert out.getvalue() == "1 runs indexed; done.\n"

    call_command("rebuild_search", stdout=out)
    assert find("tea") == [third, second, first]
    assert uncounted not in find("tea")


def test_rebuilding_brings_back_no_run_that_lost_its_outputs() -> None:
    issue = make_issue(audit="Politeness", code="rude")
    kept, purged, last = (make_stored_run(make_attempt(1, 1, "failed", issues=(issue,))).pk for _ in range(3))
    Run.objects.update(is_counted=True)
    index_runs([kept, purged, last])
    with transaction.atomic():
        remove_outputs([purged])
    for _ in range(2):
        out = StringIO()
        call_command("rebuild_search", stdout=out)
        assert find("politeness") == find("rude") == [last, kept]
        assert out.getvalue() == "3 runs indexed; done.\n"
        index_runs([purged])
        assert find("rude") == [last, purged, kept]


def test_rebuilding_goes_on_behind_runs_that_lost_their_outputs() -> None:
    *purged, last = store("tea", "tea", "tea")
    Run.objects.filter(pk__in=purged).update(outputs_removed_at=NOON)
    assert reindex_runs(above=0, limit=2) == purged
    assert reindex_runs(above=purged[-1], limit=2) == [last]
    assert find("tea") == [last]


def test_rebuilding_that_is_broken_off_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = store("tea", "tea")
    monkeypatch.setattr("runs.management.commands.rebuild_search.BATCH", 1)

    def index_one(*, above: int, limit: int) -> list[int]:
        if above >= first:
            raise KeyboardInterrupt
        return reindex_runs(above=above, limit=limit)

    monkeypatch.setattr("runs.management.commands.rebuild_search.reindex_runs", index_one)
    errors = StringIO()
    with pytest.raises(KeyboardInterrupt):
        call_command("rebuild_search", stdout=StringIO(), stderr=errors)
    assert errors.getvalue() == f"Stopped after run #{first}. Go on with --from {second}.\n"


def test_a_run_of_any_size_keeps_a_bounded_number_of_words() -> None:
    words = " ".join(f"word{number}" for number in range(20_000))
    run = make_stored_run(
        *(make_attempt(1, number, output={"text": f"{number} {words}", "more": "ß" * 300_000}) for number in (1, 2)),
        input={"many": ["again and again"] * 1_000 + [f"again {number}" for number in range(300)], "first": "tea"},
    )
    index_runs([run.pk])
    # What comes first stays: the beginning of the input.
    assert find("tea") == find('"again 240"') == [run.pk]
    # No more places of a word are known, on any database.
    assert find('"again 260"') == []
    assert find("word19999") == []
    document = documents.build_documents([run.pk])[run.pk]
    assert len(document.list_words()) == documents.MOST_WORDS


def test_a_long_input_hides_neither_issues_nor_outputs() -> None:
    issue = make_issue("high", description="Promises a refund.")
    run = make_stored_run(
        make_attempt(1, 1, "failed", issues=(issue,), output={"reply": "Certainly."}),
        input={"text": " ".join(f"word{number}" for number in range(20_000))},
    )
    index_runs([run.pk])
    assert find("refund") == find("certainly") == find("word9000") == [run.pk]
    assert find("word19999") == []


def test_words_of_many_bytes_fit_too() -> None:
    outputs = ({"text": " ".join(f"{number}{word}{'ж' * 60}" for word in range(100, 600))} for number in range(10, 40))
    attempts = (make_attempt(1, number, output=output) for number, output in enumerate(outputs, start=1))
    run = make_stored_run(*attempts, input={"text": "tea"})
    index_runs([run.pk])
    assert find("39100" + "ж" * 60) == find("tea") == [run.pk]


def test_a_long_text_that_is_cut_within_an_escape_keeps_its_beginning() -> None:
    (run_id,) = store("ä" * 3 + " é" * 100_000)
    assert find("äää") == [run_id]


def test_a_text_that_is_there_already_takes_no_room() -> None:
    document = Document()
    document.add_json('{"name": "tea leaves", "again": {"name": "Tea, leaves!"}}')
    assert document.list_words() == ["name", "·", "tea", "leaves", "·", "again", "·"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": "cut he', ["a", "cut", "he"]),
        ('{"a": "cut \\u00e', ["a", "cut"]),
        ('{"a": "cut \\', ["a", "cut"]),
        ('{"a": "\\u00e9t\\u00e9", "b": -1.5e3, "c": [true, null]}', ["a", "ete", "b", "1", "5e3", "c"]),
        ('"\\ud83c\\udf75 \\ud800 tea"', ["tea"]),
        ("", []),
    ],
)
def test_json_is_read_wherever_it_is_cut(text: str, words: list[str]) -> None:
    document = Document()
    document.add_json(text)
    assert [word for word in document.list_words() if word != documents.GAP] == words


@pytest.mark.parametrize("window", [3, 100], ids=["too-many-hits", "all-hits"])
def test_a_search_finds_every_run_once_however_many_hold_its_words(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(finding, "FIRST_LOOK", 2)
    monkeypatch.setattr(finding, "WINDOW", window)
    ids = store("old tea", "tea old", "tea", "tea", "tea", "tea", "tea")
    for text, found in (("old", ids[:2]), ('"old tea"', ids[:1]), ("tea -old", ids[2:]), ('tea -"old tea"', ids[1:])):
        query = read_query(text)
        assert search_runs(query) == found[::-1]
        assert search_runs(query, after=ids[0] - 1) == found[::-1]
        assert search_runs(query, limit=1) == found[-1:]
        assert search_runs(query, after=ids[0] - 1, limit=1) == found[:1]


@needs_postgresql
def test_rare_words_are_read_from_the_index(django_assert_num_queries: Any) -> None:
    store(*["tea leaves"] * 5)
    with django_assert_num_queries(2):
        assert list_matching(read_query("nosuchword"), limit=10) == Hits([])
        assert list_matching(read_query("tea"), limit=4) is None
