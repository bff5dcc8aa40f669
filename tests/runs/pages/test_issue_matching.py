"""Which issues of different attempts are one and the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import Outcome
from flows.engine.output_schema import SCHEMA_MISMATCH
from flows.engine.typed_output import TYPE_MISMATCH
from runs import models
from runs.pages.issue_matching import Arrival, Track, judge_attempt, trace_findings

Attempts = list[tuple[str, list[models.Issue]]]


def issue(description: str = "Too short.", **fields: Any) -> models.Issue:
    return models.Issue(**{"code": "length", "audit": "Length", "severity": "high", **fields}, description=description)


def trace(*attempts: tuple[str, list[models.Issue]]) -> list[Track]:
    """Trace attempts, numbered from 1, each given as its outcome and its issues."""
    judged = [judge_attempt(number, outcome, issues) for number, (outcome, issues) in enumerate(attempts, start=1)]
    return trace_findings([attempt for attempt in judged if attempt is not None])


def courses(*attempts: tuple[str, list[models.Issue]]) -> list[str]:
    """The course of each issue in short: ``1 2 fixed3 4`` was in attempts 1 and 2, fixed by 3, and back in 4."""
    return [
        " ".join(f"{s.number} fixed{s.fixed_by}" if s.fixed_by else str(s.number) for s in track.sightings)
        for track in trace(*attempts)
    ]


class TestCourse:
    def test_an_issue_goes_on_until_an_attempt_comes_without_it(self) -> None:
        assert courses(("failed", [issue()]), ("failed", [issue()]), ("passed", [])) == ["1 2 fixed3"]

    def test_audit_code_and_path_make_it_the_same_whatever_its_words(self) -> None:
        assert courses(("failed", [issue("3 words.")]), ("failed", [issue("5 words.")])) == ["1 2"]
        for other in ({"audit": "Other"}, {"code": "other"}, {"path": "/text"}):
            assert courses(("failed", [issue()]), ("failed", [issue(**other)])) == ["1 fixed2", "2"]

    def test_one_that_was_fixed_may_return(self) -> None:
        tracks = trace(("failed", [issue()]), ("failed", []), ("failed", [issue()]), ("failed", [issue()]))
        assert [(s.arrival, s.fixed_before) for s in tracks[0].sightings] == [
            (Arrival.INTRODUCED, None),
            (Arrival.RETURNED, 2),
            (Arrival.PERSISTED, None),
        ]
        assert tracks[0].last.origin is tracks[0].sightings[1]


class TestSeveralOfAKind:
    def test_they_are_counted_and_those_that_say_the_same_belong_together(self) -> None:
        both = [issue("“red” is wrong."), issue("“blue” is wrong.")]
        assert courses(("failed", both), ("failed", [issue("“blue” is wrong.")])) == ["1 fixed2", "1 2"]

    def test_more_of_them_than_before_are_new(self) -> None:
        assert courses(("failed", [issue()]), ("failed", [issue(), issue(), issue()])) == ["1 2", "2", "2"]

    def test_only_as_many_return_as_went(self) -> None:
        attempts: Attempts = [("failed", [issue()]), ("failed", []), ("failed", [issue(), issue()])]
        assert courses(*attempts) == ["1 fixed2 3", "3"]


class TestItemsThatMove:
    def test_an_issue_moves_with_the_item_that_its_words_name(self) -> None:
        before = [issue("“red” is wrong.", path="/colours/1"), issue("“blue” is wrong.", path="/colours/2")]
        after = [issue("“blue” is wrong.", path="/colours/1")]
        assert courses(("failed", before), ("failed", after)) == ["1 fixed2", "1 2"]

    def test_words_that_fit_any_item_prove_nothing(self) -> None:
        before, after = issue(path="/names/0"), issue(path="/names/3")
        assert courses(("failed", [before]), ("failed", [after])) == ["1 fixed2", "2"]

    def test_the_index_in_the_words_themselves_moves_too(self) -> None:
        before = issue("`lines[0].amount` must be at least 0, got -4.", path="/lines/0/amount")
        after = issue("`lines[2].amount` must be at least 0, got -4.", path="/lines/2/amount")
        assert courses(("failed", [before]), ("failed", [after])) == ["1 2"]

    def test_another_field_of_the_item_is_another_issue(self) -> None:
        before, after = issue("“x”", path="/lines/0/text"), issue("“x”", path="/lines/1/note")
        assert courses(("failed", [before]), ("failed", [after])) == ["1 fixed2", "2"]


class TestWhatAnAttemptLookedAt:
    def test_attempts_without_an_output_neither_fix_nor_introduce(self) -> None:
        for outcome in ("interrupted", "errored", "cancelled", ""):
            assert courses(("failed", [issue()]), (outcome, []), ("failed", [issue()])) == ["1 3"]
            assert courses(("failed", [issue()]), (outcome, [])) == ["1"]

    def test_audits_that_could_not_run_on_an_invalid_output_fix_nothing(self) -> None:
        mismatch = issue("Missing.", audit="", code=SCHEMA_MISMATCH)
        attempts: Attempts = [("failed", [issue()]), ("invalid", [mismatch]), ("passed", [])]
        assert courses(*attempts) == ["1 fixed3", "2 fixed3"]

    def test_what_an_invalid_output_broke_before_is_fixed_once_it_breaks_something_later(self) -> None:
        unread, schema, type_ = (
            issue(audit="", code=code) for code in ("malformed_arguments", SCHEMA_MISMATCH, TYPE_MISMATCH)
        )
        assert courses(("invalid", [unread]), ("invalid", [schema]), ("invalid", [type_])) == [
            "1 fixed2",
            "2 fixed3",
            "3",
        ]
        assert courses(("invalid", [schema]), ("invalid", [unread]), ("invalid", [schema])) == ["1 3", "2 fixed3"]

    def test_an_audit_that_could_not_be_evaluated_fixes_nothing_of_its_own(self) -> None:
        broken = issue("It broke.", code="audit_error")
        other = issue(audit="Other")
        attempts: Attempts = [("failed", [issue(), other]), ("failed", [broken]), ("passed", [])]
        assert courses(*attempts) == ["1 fixed3", "1 fixed2", "2 fixed3"]


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


@given(ATTEMPTS)
def test_what_came_before_and_what_comes_after_agree(attempts: Attempts) -> None:
    for track in trace(*attempts):
        assert track.sightings[0].arrival is Arrival.INTRODUCED
        for before, after in zip(track.sightings, track.sightings[1:], strict=False):
            if before.fixed_by is None:
                assert before.found_again is after
                assert after.arrival is Arrival.PERSISTED and after.origin is (before.origin or before)
            else:
                assert before.found_again is None
                assert before.number < before.fixed_by < after.number
                assert after.arrival is Arrival.RETURNED and after.fixed_before == before.fixed_by


@given(ATTEMPTS)
def test_as_many_of_a_kind_go_on_as_both_attempts_have(attempts: Attempts) -> None:
    both = [("failed", [one for one in issues if one.code == "length"]) for _, issues in attempts[:2]]
    if len(both) < 2:
        return
    first, second = (
        [(one.audit, one.path) for one in issues if one.path is None or "/a" not in one.path] for _, issues in both
    )
    going_on = [
        track.last.finding.issue
        for track in trace(*both)
        if len(track.sightings) == 2 and "/a" not in (track.last.finding.issue.path or "")
    ]
    for kind in {*first, *second}:
        assert sum((one.audit, one.path) == kind for one in going_on) == min(first.count(kind), second.count(kind))


@given(ATTEMPTS)
def test_attempts_without_an_output_change_nothing_for_the_others(attempts: Attempts) -> None:
    def shape(tracks: list[Track]) -> list[list[tuple[int, Arrival, bool]]]:
        return [[(id(s.finding.issue), s.arrival, s.fixed_by is None) for s in track.sightings] for track in tracks]

    with_output = [one for one in attempts if one[0] in ("passed", "failed", "invalid")]
    assert shape(trace(*attempts)) == shape(trace(*with_output))
