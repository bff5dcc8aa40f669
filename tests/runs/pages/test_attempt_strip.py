"""The strip of a step: a chip for each of its attempts."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from runs.models import RunStatus
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

CHIP = re.compile(r'<a class="strip-chip tone-(\w+)" id="(s\d+a\d+)-chip" href="#(s\d+a\d+)"( data-clean)? [^>]*>')


class TestStrip:
    def test_each_attempt_has_a_chip_with_its_outcome(self, viewer: Client) -> None:
        issues = (make_issue("critical"), make_issue("low"), make_issue("low"))
        run = make_stored_run(
            make_attempt(1, 1, "errored"),
            make_attempt(1, 2, "failed", issues=issues),
            make_attempt(1, 3),
            status=RunStatus.RUNNING,
        )
        begin_attempt(run, 2, 1)
        page = get_page(viewer, run_address(run))
        chips = [(found[1], found[2], bool(found[4])) for found in CHIP.finditer(page)]
        assert chips == [
            ("errored", "s1a1", True),
            ("failed", "s1a2", False),
            ("passed", "s1a3", True),
            ("running", "s2a1", False),
        ]
        assert 'aria-expanded="true" aria-label="Attempt 2: Failed, 1 critical, 2 low"' in page
        assert 'aria-expanded="false" aria-label="Attempt 1: Errored"' in page

    def test_it_says_how_many_attempts_of_a_step_are_used(self, viewer: Client) -> None:
        words = read_words(get_page(viewer, run_address(make_retried_run())))
        assert "1 2 2 of 4 attempts" in words
        assert "1 1 of 2 attempts" in words

    def test_calls_without_an_answer_count_for_themselves(self, viewer: Client) -> None:
        attempts = [make_attempt(1, 1, "errored"), make_attempt(1, 2, "failed"), make_attempt(1, 3, "errored")]
        page = get_page(viewer, run_address(make_stored_run(*attempts, make_attempt(1, 4))))
        assert "2 of 4 attempts, 2 errored" in read_words(page)

    def test_interrupted_attempts_count_for_themselves(self, viewer: Client) -> None:
        attempts = [make_attempt(1, number, "interrupted") for number in range(1, 61)]
        page = get_page(viewer, run_address(make_stored_run(*attempts, make_attempt(1, 61))))
        assert "1 of 4 attempts, 60 interrupted" in read_words(page)
        assert len(CHIP.findall(page)) == 61

    def test_a_step_that_has_not_begun_has_none(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_stored_run(status=RunStatus.RUNNING)))
        assert "strip-chip" not in page

    def test_a_live_update_brings_it_up_to_date(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed"), status=RunStatus.RUNNING)
        begin_attempt(run, 1, 2)
        update = viewer.get(f"/runs/{run.pk}/live?revision=2&seen=1.1", headers=HTMX).content.decode()
        assert [found[2] for found in CHIP.finditer(update)] == ["s1a1", "s1a2"]
