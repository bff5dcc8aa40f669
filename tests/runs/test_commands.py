"""``run_flow``, ``up``, ``create_token`` and ``workers`` on the terminal."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection

from runs.management.commands.serve import refuse_taken_port
from runs.management.commands.up import create_first_admin
from runs.models import ApiToken, Priority, Run
from runs.models.run import in_future
from runs.tokens import TokenRefusedError, create_token
from tests.api.asking import Script, read_problem
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version, make_worker
from tests.site.test_settings import start_command

TEA = '{"topic": "tea"}'
MINUTE = timedelta(minutes=1)
AT_ONCE = 4


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


def test_wrong_arguments_of_run_flow_end_it_with_exit_status_3(tmp_path: Path) -> None:
    done = start_command("run_flow", "example", data_dir=tmp_path)
    assert (done.returncode, "usage: manage.py run_flow" in done.stderr, "Traceback" in done.stderr) == (3, True, False)


def test_a_taken_port_is_refused_with_another_to_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=f"make up PORT={port + 1}"):
            refuse_taken_port("127.0.0.1", port)


@pytest.mark.django_db
def test_the_admin_user_is_created_once() -> None:
    assert create_first_admin()
    assert create_first_admin() is None


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


def run_create_token(user: str = "ada", **options: str) -> tuple[str, str]:
    """What the command writes to stdout and to stderr."""
    out, err = StringIO(), StringIO()
    given = {"name": "CI", "scope": "read", **options}
    call_command("create_token", user, *(f"--{name}={text}" for name, text in given.items()), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_only_the_token_is_on_stdout_and_it_is_accepted(ada: User) -> None:
    out, err = run_create_token(scope="run")
    token = out.removesuffix("\n")
    assert token.split() == [token]
    assert read_problem(Script(token).get("nowhere"))["status"] == 404
    assert "“CI” of ada (run) expires on " in err and token not in err


@pytest.mark.parametrize(
    ("user", "options", "most"),
    [
        ("adda", {}, None),
        ("gone", {}, None),
        ("ada", {"scope": "all"}, None),
        *(("ada", {"expires": text}, None) for text in ("tomorrow", "3651d", "-1d", "²d")),
        *(("ada", {"expires": text}, 45) for text in ("never", "46d")),
        *(("ada", {"name": name}, None) for name in ("", "a\udcffb", "taken")),
    ],
)
def test_what_is_refused_creates_no_token(
    ada: User, settings: Any, user: str, options: dict[str, str], most: int | None
) -> None:
    settings.TOOLFLOW_TOKEN_MAX_DAYS = most
    User.objects.create_user("gone", is_active=False)
    create_token(user=ada, name="taken", scope="read", lifetime=timedelta(days=1))
    with pytest.raises(CommandError) as refusal:
        run_create_token(user, **options)
    assert refusal.value.returncode == 1
    assert ApiToken.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_form_that_is_sent_several_times_at_once_creates_one_token() -> None:
    """The user would have seen only one of them."""
    ada = User.objects.create_user("ada")

    def create(_: int) -> str:
        try:
            return create_token(user=ada, name="CI", scope="read", lifetime=None)[1]
        except TokenRefusedError as refusal:
            return refusal.field
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = sorted(pool.map(create, range(AT_ONCE)))
    assert found[:-1] == ["name"] * (AT_ONCE - 1) and found[-1].startswith("tf_")
    assert ApiToken.objects.count() == 1


def show_workers(*arguments: str) -> tuple[str | int | None, list[str]]:
    """The exit status of the command and the lines that it wrote, with single spaces."""
    output = StringIO()
    status: str | int | None = 0
    try:
        call_command("workers", *arguments, stdout=output, stderr=StringIO())
    except SystemExit as end:
        status = end.code
    return status, [" ".join(line.split()) for line in output.getvalue().splitlines()]


@pytest.mark.django_db
def test_the_exit_status_is_1_while_runs_are_ready_and_no_worker_is_alive() -> None:
    assert show_workers()[0] == 0
    make_run(available_at=in_future(-MINUTE))
    make_worker(host="alpha", pid=7, in_flight=3, heartbeat_at=in_future(-MINUTE))
    status, lines = show_workers("--json")
    document = json.loads("".join(lines))
    assert (status, document["is_unattended"]) == (1, True)
    assert document["queue"].pop("oldest_ready") >= 60
    assert document["queue"] == {"ready": 1, "later": 0, "waiting": 0}
    (worker,) = document["workers"]
    assert worker.pop("silent_for") >= 60 and isinstance(worker.pop("running_for"), float)
    assert worker == {"host": "alpha", "pid": 7, "version": "0.1.0", "state": "silent", "slots": 200, "in_flight": 3}
    make_worker(pid=2)
    assert show_workers()[0] == 0


def test_a_database_that_was_not_set_up_gives_exit_status_2(tmp_path: Path) -> None:
    done = start_command("workers", "--json", data_dir=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
