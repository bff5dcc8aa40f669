"""What runs are found by, asked alike of every database, and where in a run the words are."""

from __future__ import annotations

import contextlib
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import transaction

from runs.models import Run, RunStatus
from runs.retention.purging import remove_outputs
from runs.rollup import count_ended_runs
from runs.search import (
    empty_index,
    fetch_matching_among,
    fetch_matching_ids,
    find_excerpts,
    index_runs,
    parse_search,
)
from runs.search.index import fetch_indexed
from tests.engine.builders import make_attempt, make_error, make_issue
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_stored_run

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def store(*texts: object) -> list[int]:
    """Store ended runs that are found by their inputs alone; gives their numbers."""
    ids = [make_stored_run(input={"text": text}).pk for text in texts]
    Run.objects.filter(pk__in=ids).update(is_counted=True)
    index_runs(ids)
    return ids


def find(typed: str) -> list[int]:
    """All runs that match, as lists find them: in the index, then one by one where that is not exact."""
    query = parse_search(typed)
    hits = fetch_matching_ids(query, limit=100)
    assert hits is not None
    matching = fetch_matching_among(query, hits[0])
    assert not hits[1] or matching == set(hits[0])
    return sorted(matching)


PAID = "The invoice was paid late"
FOUND: dict[str, tuple[object, tuple[str, ...]]] = {
    "words": (PAID, ("invoice", "LATE invoice", "invoice -tea", "the ! invoice ??", "inv*", "in* la*")),
    "phrases": (PAID, ('"was paid"', "“paid late”", "«paid late»", '"invoice was pa*"', 'invoice -"paid was"')),
    "hyphens": ("INV-2026-0042 is due", ("INV-2026-0042", "inv-2026*", "INV-2026-*", "0042")),
    "e-mail": ("write to user.name@example.org", ("user.name@example.org", "example.org", '"name@example"')),
    "underscores": ("order_4711 hex_format", ("order_4711", "4711", "hex format")),
    "quotes": ("the ‘so-called’ “fact”, don't", ("called fact", "so-called", "don't", "don’t")),
    "colour": ("colour #C8763A", ("#C8763A", "c87*")),
    "accents": ("Zürich, Łódź, Åse, Đà Nẵng", ("zurich ase", "ZÜRICH", "nang", "Łódź")),
    "ligatures": ("Straße ﬁne ﬂow \U0001d4d7ello cafe\u0301", ("STRASSE", "fine flow", "hello", "café")),
    "greek and cyrillic": ("Ελλάδα ὁδός и Россия", ("ελλαδα россия", "ΕΛΛΆΔΑ", "ΟΔΌΣ ελλ*")),
    "arabic and hebrew": ("العَرَبِيَّة لغة שָׁלוֹם עולם", ("العربية", "العر*", "שלום", '"שלום עולם"')),
    "hindi and korean": ("नमस्ते दुनिया 한국어 텍스트", ("नमस्ते", "दुनिया", "한국어", "한국*")),
    "chinese and japanese": ("東京都の天気", ("天気", "東京*", "京都の", "の天気")),
    "thai": ("ภาษาไทยง่ายมาก", ("ไทย", "ภาษาไทย", "ง่าย")),
    "emoji": ("emoji 🍵 tea", ("🍵 tea",)),
    "numbers": ([4711, -0.25], ("4711", "47*", "0.25")),
    "nested": ({"deep": [{"er": ["treasure"]}]}, ("treasure",)),
    "control characters": ("a\x00b \ud800 \u202etrap", ("trap",)),
    "operators": ("NOT AND OR NEAR", ("NOT", "and or")),
    "long word": ("x" * 80, ("x" * 80,)),
}


@pytest.mark.parametrize(("text", "searches"), FOUND.values(), ids=FOUND)
def test_what_is_there_is_found(text: object, searches: tuple[str, ...]) -> None:
    run_id, _ = store(text, "something else")
    assert {typed: find(typed) for typed in searches} == {typed: [run_id] for typed in searches}


@pytest.mark.parametrize(
    ("text", "searches"),
    [
        (PAID, ("invoice coffee", '"was invoice"', "voice", "invoice -late", 'invoice -"paid late"', "invoice -pai*")),
        ("INV-2026-0042 is due", ("0042-2026",)),
        ("東京都の天気", ("都東", "天の")),
        (["paid", "late"], ('"paid late"',)),
        ({"vat_rate": True, "net": None}, ("vat_rate", "true", "null")),
        ("a\nb", ("nb",)),
    ],
    ids=["words", "order", "characters", "strings", "keys", "line break"],
)
def test_what_is_not_there_is_not_found(text: object, searches: tuple[str, ...]) -> None:
    store(text)
    assert {typed: find(typed) for typed in searches} == {typed: [] for typed in searches}


def test_inputs_outputs_and_issues_of_all_attempts_are_found() -> None:
    issue = make_issue(
        description="Not a colour.", code="hex_format", audit="Hex colours", suggestions=("Write six digits",)
    )
    run = make_stored_run(
        make_attempt(1, 1, "failed", output={"text": "crimson"}, issues=(issue,)),
        make_attempt(1, 2, "invalid", raw_output='{"text": "scarl'),
        make_attempt(1, 3, "errored", error=make_error(message="The context is too long.")),
        make_attempt(1, 4, output={"text": "ruby", "numbers": [17, {"deep": "garnet"}]}, raw_output={"text": "raw"}),
        input={"topic": "tea"},
    )
    index_runs([run.pk])
    issues = ('"not a colour"', "hex_format", '"hex colours"', "six digits")
    for typed in ("tea", "crimson", *issues, "scarl", '"context is too long"', "ruby", "17", "garnet", "tea crimson"):
        assert find(typed) == [run.pk], typed
    # What was sanitized away is shown by the run's page, and misleads here.
    assert find("raw") == []


def test_only_runs_that_have_ended_are_found_and_only_once_they_are_counted() -> None:
    make_run(input={"topic": "tea"})
    ended = make_stored_run(input={"topic": "tea"}, status=RunStatus.FAILED)
    assert find("tea") == []
    count_ended_runs()
    assert find("tea") == [ended.pk]


@pytest.mark.parametrize("typed", ["  ", "#*!", "🍵", "-tea", "t*", "tea " * 31, "x" * 501])
def test_a_search_for_nothing_or_for_too_much_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        parse_search(typed)


HOSTILE = r"""
' " "" tea' tea" '-" - --tea * **tea te** “tea tea” ((((tea tea-- tea/*x*/ $$tea$$ % tea%s \ tea\' {tea}:x tea^2 te:a
tea:* tea&!x NEAR(tea AND OR NOT words:tea tea<->x
"""


def test_whatever_is_typed_is_no_error_of_the_database() -> None:
    store("tea")
    for typed in [*HOSTILE.split(), "tea' OR '1'='1", "tea) OR (x", "tea AND", "\x00tea", "\ud800", "--tea x"]:
        with contextlib.suppress(ValueError):  # there may be no word in it: another test's business
            find(typed)


def test_the_words_of_a_run_go_with_its_texts_and_with_the_run() -> None:
    gone, stays, *_ = ids = store("tea", "tea", "coffee")
    for _ in range(2):  # also if it is interrupted and repeated
        with transaction.atomic():
            remove_outputs([gone])
        assert find("tea") == [stays]
        assert fetch_indexed(ids) == set(ids) - {gone}
    Run.objects.all().delete()
    assert (fetch_indexed(ids), find("tea")) == (set(), [])


def rebuild(*arguments: str) -> str:
    out = StringIO()
    call_command("rebuild_search", *arguments, stdout=out)
    return out.getvalue()


def test_rebuilding_indexes_all_ended_runs_or_those_from_a_number_on() -> None:
    first, purged, third = ids = store("tea", "tea", "tea")
    uncounted = make_stored_run(input={"text": "tea"}).pk
    with transaction.atomic():
        remove_outputs([purged])
    empty_index()
    assert "2 runs" in rebuild("--from", str(purged))
    assert find("tea") == [third]
    Run.objects.filter(pk=first).update(input={"text": "coffee"})
    assert "3 runs" in rebuild()
    assert (find("tea"), find("coffee")) == ([third], [first])
    assert fetch_indexed([*ids, uncounted]) == {first, third}


def test_a_run_of_any_size_is_found_by_a_bounded_number_of_words() -> None:
    words = " ".join(f"word{number}" for number in range(20_000))
    long_words = " ".join(f"{number}{'ж' * 60}" for number in range(100, 5_100))
    issue = make_issue("high", description="Promises a refund.")
    run = make_stored_run(
        make_attempt(1, 1, "failed", issues=(issue,), output={"reply": "Certainly."}),
        make_attempt(1, 2, output={"text": words, "more": "ß" * 300_000}),
        input={"first": "tea", "many": [f"again {number}" for number in range(300)], "words": words},
    )
    index_runs([run.pk])
    # A long input hides neither issues nor outputs, and what comes first stays.
    assert find("refund") == find('"again 299"') == find("word5000") == [run.pk]
    assert find("word19999") == []
    (bytes_run,) = store({"first": "tea", "long": long_words})
    assert find("101" + "ж" * 60) == [bytes_run] and find("tea") == [run.pk, bytes_run]


class TestExcerpts:
    def show(self, run: Run, typed: str) -> list[str]:
        """The excerpts of a run as one line each, with what is marked in brackets."""
        return [
            f"{one.place}: " + "".join(f"[{piece.text}]" if piece.is_marked else piece.text for piece in one.pieces)
            for one in find_excerpts([run.pk], parse_search(typed))[run.pk]
        ]

    @pytest.fixture
    def run(self) -> Run:
        issue = make_issue(description="The invoice is not paid yet.", code="unpaid", audit="Payment")
        return make_stored_run(
            make_attempt(1, 1, "failed", output={"text": "We sent a reminder."}, issues=(issue,)),
            make_attempt(1, 2, output={"text": "We called. The INVOICE was settled."}),
            make_attempt(2, 1, "errored", error=make_error(message="The provider is overloaded.")),
            input={"topic": "Invoice INV-2026-0042 of Café Zürich"},
        )

    @pytest.mark.parametrize(
        ("typed", "lines"),
        [
            ("cafe zur*", ["Input: Invoice INV-2026-0042 of [Café] [Zürich]"]),
            ("invoice", ["Input: [Invoice] INV-2026-0042 of Café Zürich"]),
            ('"invoice is not"', ["Step 1, attempt 1, issue: The [invoice is not] paid yet."]),
            ("overloaded", ["Step 2, attempt 1, error: The provider is [overloaded]."]),
            (
                "called invoice",
                [
                    "Input: [Invoice] INV-2026-0042 of Café Zürich",
                    "Step 1, attempt 2, output: We [called]. The [INVOICE] was settled.",
                ],
            ),
            ("coffee", []),
        ],
    )
    def test_the_first_text_that_holds_a_word_is_shown_with_the_word_marked(
        self, run: Run, typed: str, lines: list[str]
    ) -> None:
        assert self.show(run, typed) == lines
