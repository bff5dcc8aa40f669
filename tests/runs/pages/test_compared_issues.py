"""Where the issues of two runs lead that are compared: to their lines, and to their runs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from flows.engine.history import Attempt
from runs.models import Run, RunStatus
from runs.pages import compared_issues
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page, read_words, run_address

pytestmark = pytest.mark.django_db

COLOURS = {"name": "Sea", "colours": ["#00f", "#0ff", "blue"]}
HEX: dict[str, Any] = {"code": "hex_format", "audit": "Hex colours", "path": "/colours/2"}


def judge(output: Any = COLOURS, **fields: Any) -> Attempt:
    return make_attempt(1, 1, "failed", output=output, issues=(make_issue("high", "No colour.", **HEX | fields),))


def store(*attempts: Attempt) -> Run:
    return make_stored_run(*attempts, status=RunStatus.FAILED)


def read_page(client: Client, left: Run, right: Run) -> str:
    return get_page(client, f"/runs/compare/?a={left.pk}&b={right.pk}")


def read_links(page: str) -> list[str]:
    """Where the issues lead, in their order."""
    issues = re.findall(r'<li class="issue".*?</li>\s*(?=<li class="issue"|</ol>)', page, re.DOTALL)
    return [address for issue in issues for address in re.findall(r'href="([^"]*)"', issue)]


def test_an_issue_on_the_right_and_its_line_lead_to_each_other(viewer: Client) -> None:
    page = read_page(viewer, store(judge({"name": "Sea", "colours": ["#00f", "#0ff", "#f00"]})), store(judge()))
    line = re.search(r'<span class="line diff-changed"[^>]*id="b1-l6" data-marks="high"><a [^>]*href="#(b1-i0)"', page)
    assert line is not None and f'<li class="issue" id="{line[1]}"' in page
    assert 'href="#b1-l6">/colours/2, line 6</a>' in page


def test_its_line_is_in_view_though_nothing_changed_there(viewer: Client) -> None:
    issue_of = {"path": "/colours/30", "code": "hex_format"}
    long = {"colours": [f"#{number:06x}" for number in range(60)]}
    page = read_page(viewer, store(make_attempt(1, 1, output=long)), store(judge(long, **issue_of)))
    folded = "".join(re.findall(r'<details class="diff-fold">.*?</details>', page, re.DOTALL))
    assert "#00001d" in folded
    assert 'id="b1-l33"' in page and 'id="b1-l33"' not in folded


def test_each_issue_leads_to_itself_on_the_page_of_its_run(viewer: Client) -> None:
    left = store(make_attempt(1, 1, "failed"), judge().model_copy(update={"number": 2}))
    right = store(judge())
    page = read_page(viewer, left, right)
    assert read_links(page) == [f"/runs/{left.pk}/#s1a2-i0", "#b1-l6", f"/runs/{right.pk}/#s1a1-i0"]
    for run, id in ((left, "s1a2-i0"), (right, "s1a1-i0")):
        assert f'id="{id}"' in get_page(viewer, run_address(run))
        assert f"Open in #{run.pk}" in read_words(page)


@pytest.mark.parametrize("is_swapped", [False, True])
def test_the_only_output_there_is_has_marks_on_either_side(viewer: Client, is_swapped: bool) -> None:
    runs = [store(judge()), store(make_attempt(1, 1, "errored"))]
    page = read_page(viewer, *(reversed(runs) if is_swapped else runs))
    prefix = "b1" if is_swapped else "a1"
    assert f'id="{prefix}-l6" data-marks="high"' in page and f'href="#{prefix}-l6"' in page
    assert f'id="{prefix}-i0"' in page


def test_suggestions_are_part_of_the_reason(viewer: Client) -> None:
    page = read_page(viewer, store(judge()), store(judge(suggestions=("Write #0000ff.", "Or <b>leave</b> it out."))))
    assert "No colour. Write #0000ff. Or <b>leave</b> it out." in read_words(page)
    assert "<b>leave</b>" not in page


def test_what_is_not_laid_out_has_no_lines_to_lead_to(viewer: Client) -> None:
    runs = [store(judge({"colours": [number] * 5_100}, path="/colours/2")) for number in (1, 2)]
    page = read_page(viewer, *runs)
    assert "These outputs are too long to be compared here" in page
    assert read_links(page) == [f"/runs/{run.pk}/#s1a1-i0" for run in runs]


def test_a_missing_value_leads_to_where_it_would_be(viewer: Client) -> None:
    page = read_page(viewer, store(judge()), store(judge(path="/colours/9")))
    assert 'href="#b1-l3">/colours/9, missing; see line 3</a>' in page


def test_the_gravest_are_listed_and_only_they_have_marks(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_issues, "MOST_ISSUES", 1)
    issues = (make_issue("low", path="/colours/0"), make_issue("critical", path="/colours/1"))
    page = read_page(viewer, store(judge()), store(make_attempt(1, 1, "failed", output=COLOURS, issues=issues)))
    assert 'id="b1-l5" data-marks="critical"' in page and "b1-l4" not in page
    assert "The attempt has 2 issues; the gravest 1 are shown." in read_words(page)
