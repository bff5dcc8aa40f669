"""``run_flow`` and ``up`` on the terminal, where they refuse. What they do is in tests/journeys."""

from __future__ import annotations

import socket
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.management.commands.serve import refuse_taken_port
from runs.management.commands.up import create_first_admin
from runs.models import Priority, Run
from tests.engine.builders import make_flow
from tests.runs.builders import make_version
from tests.site.test_settings import start_command

TEA = '{"topic": "tea"}'


@pytest.mark.django_db
class TestRunFlow:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        schema = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
        make_version(make_flow(input_schema=schema, token_budget=5_000))
        path = tmp_path / "input.json"
        path.write_text(TEA)
        return path

    def test_a_run_gets_the_options_and_else_those_of_its_flow(self, path: Path) -> None:
        options = ("--priority", "high", "--token-budget", "20000", "--cost-budget", "0.50", "--time-limit", "600")
        for arguments in (options, ()):
            call_command("run_flow", "example", "--input", str(path), *arguments, stdout=StringIO())
        rows = Run.objects.order_by("pk").values_list("priority", "token_budget", "cost_budget", "time_limit")
        assert list(rows) == [
            (Priority.HIGH, 20_000, Decimal("0.50"), timedelta(minutes=10)),
            (Priority.NORMAL, 5_000, None, None),
        ]

    @pytest.mark.parametrize(
        ("text", "arguments", "words"),
        [
            (TEA, ["exmaple"], "Flows: example."),
            ('{"topic": ', ["example"], "Line 1"),
            ("[1]", ["example"], "object"),
            ('{"topic": NaN}', ["example"], "NaN"),
            ('{"topic": 5}', ["example"], "/topic"),
            (TEA, ["example", "--input", "nothing.json"], "nothing.json"),
            (TEA, ["example", "--priority", "urgent"], "high, normal, low"),
            (TEA, ["example", "--token-budget", "0"], "token budget"),
            (TEA, ["example", "--cost-budget", "0,50"], "cost budget"),
            (TEA, ["example", "--time-limit", "10m"], "time limit"),
        ],
    )
    def test_what_can_not_be_run_is_refused_with_exit_status_3(
        self, path: Path, text: str, arguments: list[str], words: str
    ) -> None:
        path.write_text(text)
        with pytest.raises(CommandError) as refusal:
            call_command("run_flow", "--input", str(path), *arguments)
        assert words in str(refusal.value)
        assert refusal.value.returncode == 3
        assert not Run.objects.exists()


@pytest.mark.parametrize(("arguments", "status"), [(["example"], 3), (["--help"], 0)])
def test_wrong_arguments_of_run_flow_end_it_with_exit_status_3(
    tmp_path: Path, arguments: list[str], status: int
) -> None:
    done = start_command("run_flow", *arguments, data_dir=tmp_path)
    assert done.returncode == status
    assert "usage: manage.py run_flow" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_refused_with_another_to_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=f"make up PORT={port + 1}"):
            refuse_taken_port("127.0.0.1", port)


@pytest.mark.django_db
def test_the_admin_user_is_created_once() -> None:
    assert create_first_admin()
    assert create_first_admin() is None
