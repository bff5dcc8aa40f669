"""Priority, budgets and time limit on the terminal, and what ``manage.py run_flow`` says to wrong arguments."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.models import Priority, Run
from tests.engine.builders import make_flow
from tests.runs.builders import make_version
from tests.site.test_settings import start_command


@pytest.fixture
def input_file(tmp_path: Path) -> str:
    path = tmp_path / "input.json"
    path.write_text('{"topic": "tea"}')
    return str(path)


@pytest.mark.django_db
class TestOptions:
    def test_a_run_gets_what_it_is_given(self, input_file: str) -> None:
        make_version()
        options = ("--priority", "high", "--token-budget", "20000", "--cost-budget", "0.50", "--time-limit", "600")
        call_command("run_flow", "example", "--input", input_file, *options, stdout=StringIO())
        run = Run.objects.get()
        assert run.priority == Priority.HIGH
        assert (run.token_budget, run.cost_budget) == (20_000, Decimal("0.50"))
        assert run.time_limit == timedelta(minutes=10)

    def test_without_options_the_flow_decides(self, input_file: str) -> None:
        make_version(make_flow(token_budget=5_000))
        call_command("run_flow", "example", "--input", input_file, stdout=StringIO())
        run = Run.objects.get()
        assert run.priority == Priority.NORMAL
        assert (run.token_budget, run.cost_budget, run.time_limit) == (5_000, None, None)

    @pytest.mark.parametrize(
        ("option", "text", "says"),
        [
            ("--priority", "urgent", "“urgent” is not a priority; it can be high, normal, low."),
            ("--token-budget", "0", "“0” is not a token budget"),
            ("--cost-budget", "0,50", "“0,50” is not a cost budget"),
            ("--time-limit", "10m", "“10m” is not a time limit"),
        ],
    )
    def test_a_wrong_one_is_refused_with_a_sentence_and_exit_status_3(
        self, input_file: str, option: str, text: str, says: str
    ) -> None:
        make_version()
        with pytest.raises(CommandError) as refusal:
            call_command("run_flow", "example", "--input", input_file, option, text)
        assert str(refusal.value).startswith(says)
        assert refusal.value.returncode == 3
        assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "the following arguments are required: SLUG, --input"),
        (("example", "--input", "-", "--colour"), "unrecognized arguments: --colour"),
        (("example", "--input", "-", "--token-budget"), "argument --token-budget: expected one argument"),
    ],
)
def test_arguments_that_make_no_sense_end_it_with_exit_status_3(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = start_command("run_flow", *arguments, data_dir=tmp_path)
    assert done.returncode == 3
    assert says in done.stderr and "usage: manage.py run_flow" in done.stderr
    assert "Traceback" not in done.stderr


def test_its_help_is_no_wrong_use(tmp_path: Path) -> None:
    done = start_command("run_flow", "--help", data_dir=tmp_path)
    assert done.returncode == 0
    assert "--cost-budget USD" in done.stdout
