"""Which issues of different attempts are one and the same, also where the items of lists moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.audits import MORE_ISSUES
from flows.engine.history import Outcome
from flows.engine.json_values import format_pointer
from flows.engine.schemas import MORE_SCHEMA_MISMATCHES, SCHEMA_MISMATCH
from flows.engine.typed_output import MORE_TYPE_MISMATCHES, TYPE_MISMATCH
from runs import models
from runs.history.matching import Finding, Track, judge_attempt, trace_findings
from runs.history.pairing import ItemMoves

Attempts = list[tuple[str, list[models.Issue]]]


def issue(description: str = "Too short.", **fields: Any) -> models.Issue:
    return models.Issue(**{"code": "length", "audit": "Length", "severity": "high", **fields}, description=description)


def trace(*attempts: tuple[str, list[models.Issue]], outputs: Sequence[Any] = ()) -> list[Track]:
    """Trace attempts, numbered from 1, each given as its outcome and its issues."""
    judged = [judge_attempt(number, outcome, issues) for number, (outcome, issues) in enumerate(attempts, start=1)]
    found = [attempt for attempt in judged if attempt is not None]

    def find_moves(old: int, new: int) -> ItemMoves | None:
        assert old < new
        return ItemMoves(outputs[old - 1], outputs[new - 1]) if outputs else None

    return trace_findings(found, find_moves)


def courses(*attempts: tuple[str, list[models.Issue]], outputs: Sequence[Any] = ()) -> list[str]:
    """The course of each issue in short: ``1 2 fixed3 4`` was in attempts 1 and 2, fixed by 3, and back in 4."""
    return [
        " ".join(f"{s.number} fixed{s.fixed_by}" if s.fixed_by else str(s.number) for s in track.sightings)
        for track in trace(*attempts, outputs=outputs)
    ]


def colours(*names: str) -> dict[str, Any]:
    return {"colours": list(names)}


def lines(*amounts: Any) -> dict[str, Any]:
    """An invoice whose lines are distinguished by their texts."""
    return {"lines": [{"text": f"Line {place}", "amount": amount} for place, amount in enumerate(amounts)]}


RED = {"description": "“red” is wrong."}
LINES = [{"id": place, "amount": place} for place in range(3)]
GROUPS = [{"id": 1, "lines": []}, {"id": 2, "lines": [{"id": 7}, {"id": 8}, {"id": 9, "text": "x"}]}]


class TestItemsThatMove:
    @pytest.mark.parametrize(
        ("paths", "outputs"),
        [
            (("/colours/2", "/colours/1"), (colours("#111", "#222", "red"), colours("#111", "red"))),
            # An item that changed moves too, and so do items of items.
            (
                ("/groups/1/lines/2/text", "/groups/0/lines/0/text"),
                ({"groups": GROUPS}, {"groups": [{"id": 2, "lines": [{"id": 9, "text": "y"}]}]}),
            ),
            # One that changed places is known by its name.
            (
                ("/lines/2/amount", "/lines/0/amount"),
                ({"lines": LINES}, {"lines": [{"id": 2, "amount": "n/a"}, *LINES[:2]]}),
            ),
        ],
        ids=["removed before", "nested", "named"],
    )
    def test_an_issue_moves_with_its_item(self, paths: tuple[str, str], outputs: tuple[Any, Any]) -> None:
        before, after = (issue(path=path, **RED) for path in paths)
        assert courses(("failed", [before]), ("failed", [after]), outputs=outputs) == ["1 2"]
        # Without the outputs it is not known.
        assert courses(("failed", [before]), ("failed", [after])) == ["1 fixed2", "2"]
        # An attempt without an output between them makes no difference.
        between = [outputs[0], None, outputs[1]]
        assert courses(("failed", [before]), ("errored", []), ("failed", [after]), outputs=between) == ["1 3"]

    @pytest.mark.parametrize("words", ["An amount has at most 2 decimals.", "`lines[{}].amount` must be a number."])
    def test_a_repaired_one_is_fixed_though_another_item_breaks_in_the_same_words(self, words: str) -> None:
        before = issue(words.format(0), path="/lines/0/amount")
        after = issue(words.format(3), path="/lines/3/amount")
        outputs = [lines("n/a", 2, 3, 4), lines(1, 2, 3, "n/a")]
        assert courses(("failed", [before]), ("failed", [after]), outputs=outputs) == ["1 fixed2", "2"]

    @pytest.mark.parametrize(
        "path", ["/lines/0/text", "/colours/07", "/colours/99999999999999999999", "/colours/-", "/0/0", "colours/0"]
    )
    def test_another_field_and_paths_that_lead_nowhere_move_nothing(self, path: str) -> None:
        before, after = issue(path="/colours/1"), issue(path=path)
        outputs: list[Any] = [colours("#111", "red"), colours("red")]
        for pair in (outputs, outputs[::-1], [lines(1, 2), lines(2)], [[], {}], ["", 1]):
            assert courses(("failed", [before]), ("failed", [after]), outputs=pair) == ["1 fixed2", "2"]


class TestMoreThanAreKept:
    """An audit keeps 500 issues of an output, and 50 violations of a schema are reported one by one."""

    def cut(self, places: range, code: str = MORE_ISSUES, **fields: Any) -> list[models.Issue]:
        found = [issue("Too dear.", path=f"/lines/{place}", **fields) for place in places]
        return [*found, issue("There are more.", **{**fields, "code": code})]

    def test_what_is_only_no_longer_listed_is_not_fixed(self) -> None:
        before = [issue("Too dear.", path=f"/lines/{place}") for place in range(3, 8)]
        tracks = trace(("failed", before), ("failed", self.cut(range(5))), outputs=[{}, {}])
        assert len(tracks) == 9 and not any(track.last.fixed_by for track in tracks)

    def test_an_attempt_that_lists_all_tells_what_became_of_it(self) -> None:
        attempts: Attempts = [
            ("failed", [issue(path="/a"), issue(path="/b")]),
            ("failed", self.cut(range(1))),
            ("failed", [issue(path="/a")]),
        ]
        assert courses(*attempts, outputs=[{}, {}, {}]) == ["1 3", "1 fixed3", "2 fixed3", "2 fixed3"]

    @pytest.mark.parametrize(
        ("code", "more"), [(SCHEMA_MISMATCH, MORE_SCHEMA_MISMATCHES), (TYPE_MISMATCH, MORE_TYPE_MISMATCHES)]
    )
    def test_violations_of_schemas_and_types_are_cut_too(self, code: str, more: str) -> None:
        before = [issue(path="/a", code=code, audit="")]
        after = [issue(path="/b", code=code, audit=""), issue(code=more, audit="")]
        assert courses(("invalid", before), ("invalid", after), ("failed", [])) == ["1 fixed3", "2 fixed3", "2 fixed3"]


MISMATCH, UNREAD, TYPE = (
    issue(audit="", code=code) for code in (SCHEMA_MISMATCH, "malformed_arguments", TYPE_MISMATCH)
)
RED_ONE, BLUE_ONE, OTHER, BROKEN = (
    issue("“red” is wrong."),
    issue("“blue” is wrong."),
    issue(audit="Other"),
    issue(code="audit_error"),
)


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        # Audit, code and path make it the same, whatever its words.
        ([("failed", [issue("3 words.")]), ("failed", [issue("5 words.")])], ["1 2"]),
        ([("failed", [issue()]), ("failed", [OTHER])], ["1 fixed2", "2"]),
        ([("failed", [issue()]), ("failed", [issue(code="other")])], ["1 fixed2", "2"]),
        ([("failed", [issue()]), ("failed", [issue(path="/text")])], ["1 fixed2", "2"]),
        # Those of a kind are counted, and those that say the same belong together.
        ([("failed", [RED_ONE, BLUE_ONE]), ("failed", [BLUE_ONE])], ["1 fixed2", "1 2"]),
        ([("failed", [issue()]), ("failed", []), ("failed", [issue(), issue()])], ["1 fixed2 3", "3"]),
        # Audits that could not run fix nothing.
        ([("failed", [issue()]), ("invalid", [MISMATCH]), ("passed", [])], ["1 fixed3", "2 fixed3"]),
        ([("failed", [issue(), OTHER]), ("failed", [BROKEN]), ("passed", [])], ["1 fixed3", "1 fixed2", "2 fixed3"]),
        # What an invalid output broke is fixed once it breaks something later.
        ([("invalid", [UNREAD]), ("invalid", [MISMATCH]), ("invalid", [TYPE])], ["1 fixed2", "2 fixed3", "3"]),
        ([("invalid", [MISMATCH]), ("invalid", [UNREAD]), ("invalid", [MISMATCH])], ["1 3", "2 fixed3"]),
    ],
)
def test_courses(attempts: Attempts, expected: list[str]) -> None:
    assert courses(*attempts) == expected


ISSUES = st.builds(
    issue,
    st.sampled_from(["“red” is wrong.", "Too short.", "“blue” is wrong."]),
    code=st.sampled_from(["length", "audit_error", SCHEMA_MISMATCH]),
    audit=st.sampled_from(["", "Length"]),
    path=st.sampled_from([None, "/a/0", "/a/1", "/b"]),
)
ATTEMPTS = st.lists(
    st.tuples(st.sampled_from([*(outcome.value for outcome in Outcome), ""]), st.lists(ISSUES, max_size=4)), max_size=6
)


@given(ATTEMPTS)
def test_each_issue_that_was_judged_is_on_one_course_which_only_goes_forward(attempts: Attempts) -> None:
    judged = [
        (number, one)
        for number, (outcome, issues) in enumerate(attempts, start=1)
        if outcome in ("passed", "failed", "invalid")
        for one in issues
    ]
    tracks = trace(*attempts)
    seen = [(s.number, id(s.finding.issue)) for track in tracks for s in track.sightings]
    assert sorted(seen) == sorted((number, id(one)) for number, one in judged)
    for track in tracks:
        numbers = [s.number for s in track.sightings]
        assert numbers == sorted(set(numbers))
        assert {(s.finding.issue.audit, s.finding.issue.code) for s in track.sightings} == {
            (track.last.finding.issue.audit, track.last.finding.issue.code)
        }


class TestWork:
    """What matching costs grows with the issues, not with issues times attempts."""

    @staticmethod
    def count_looks(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> int:
        """How often a fingerprint was read."""
        looks = 0
        read = Finding.fingerprint.fget  # type: ignore[attr-defined]  # a property

        def counted(finding: Finding) -> Any:
            nonlocal looks
            looks += 1
            return read(finding)

        with monkeypatch.context() as patch:
            patch.setattr(Finding, "fingerprint", property(counted))
            trace(*attempts)
        return looks

    def test_issues_that_were_fixed_long_ago_cost_nothing_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def attempts(count: int) -> Attempts:
            return [("failed", [issue(path=f"/{number}/x{place}") for place in range(5)]) for number in range(count)]

        few, many = self.count_looks(attempts(10), monkeypatch), self.count_looks(attempts(40), monkeypatch)
        assert many <= 5 * few


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "a b", "0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "a/b", "0", ""]), inner),
    max_leaves=12,
)


def list_pointers(value: Any, parts: tuple[str | int, ...] = ()) -> Iterator[str]:
    yield format_pointer(parts)
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, child in children:
        yield from list_pointers(child, (*parts, part))


@given(VALUES, VALUES, st.text(alphabet="/01ab~-", max_size=6))
def test_no_two_places_come_from_one(old: Any, new: Any, text: str) -> None:
    moves = ItemMoves(old, new)
    moves.trace_back(text)
    found = [origin for pointer in list_pointers(new) if (origin := moves.trace_back(pointer)) is not None]
    assert len(set(found)) == len(found)
