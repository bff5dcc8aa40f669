"""What an installation takes from its environment, and what it says where that is wrong."""

from __future__ import annotations

import os
import runpy
import sqlite3
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.views.debug import SafeExceptionReporterFilter

from tests.processes import run_python
from toolflow_site.environment import read_secret_key

KEY = "sk-never-to-be-seen-0123456789"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "var"


def make_environment(data_dir: Path, variables: dict[str, str]) -> dict[str, str]:
    """An environment that holds nothing of ToolFlow's but the given variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLOW_", "DATABASE_URL"))}
    return {**clean, "TOOLFLOW_DATA_DIR": str(data_dir), "TOOLFLOW_ENV_FILE": os.devnull, **variables}


def read_settings(data_dir: Path, **variables: str) -> dict[str, Any]:
    """The settings as a process with the given variables has them."""
    with mock.patch.dict(os.environ, make_environment(data_dir, variables), clear=True):
        return runpy.run_path(str(settings.BASE_DIR / "toolflow_site" / "settings.py"))


def start_command(*arguments: str, data_dir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py`` with the given arguments and variables to its end."""
    environment = make_environment(data_dir, variables)
    return run_python("manage.py", *arguments, cwd=settings.BASE_DIR, environment=environment, timeout=60)


def test_without_any_variable_it_runs_embedded_with_the_simulated_model(data_dir: Path) -> None:
    found = read_settings(data_dir)
    assert found["TOOLFLOW_PROVIDER"] == "simulated"
    assert found["TOOLFLOW_MODEL"] == "gpt-5-mini"
    assert found["DEBUG"] is False
    assert found["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]
    assert found["DATABASES"]["default"]["ENGINE"] == "django.db.backends.sqlite3"
    assert found["DATABASES"]["default"]["NAME"] == str(data_dir / "toolflow.sqlite3")
    assert found["Q_CLUSTER"]["orm"] == "default"
    assert (found["TOOLFLOW_LEASE"], found["TOOLFLOW_PLUGIN_WAIT"], found["TOOLFLOW_PLUGIN_TIMEOUT"]) == (60, 900, 60)
    assert found["TOOLFLOW_SEVERAL_HOSTS"] is False


@pytest.mark.parametrize(
    ("variables", "provider"),
    [
        ({"OPENAI_API_KEY": KEY}, "openai"),
        ({"OPENAI_BASE_URL": "http://localhost:8080/v1"}, "openai"),
        ({"OPENAI_API_KEY": " ", "TOOLFLOW_WORKERS": ""}, "simulated"),
    ],
)
def test_a_key_or_an_address_is_enough_to_call_a_real_provider(
    data_dir: Path, variables: dict[str, str], provider: str
) -> None:
    found = read_settings(data_dir, **variables)
    assert (found["TOOLFLOW_PROVIDER"], found["TOOLFLOW_WORKERS"]) == (provider, 2)


def test_the_secret_key_is_made_once_in_a_file_that_only_its_owner_can_read(data_dir: Path) -> None:
    first = read_settings(data_dir)["SECRET_KEY"]
    file = data_dir / "secret_key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert len(first) >= 50
    assert read_settings(data_dir)["SECRET_KEY"] == first == file.read_text().strip()


def test_the_sqlite_database_and_its_logs_can_only_be_read_by_their_owner(data_dir: Path) -> None:
    database = read_settings(data_dir)["DATABASES"]["default"]
    with closing(sqlite3.connect(database["NAME"], factory=database["OPTIONS"]["factory"])) as connection:
        connection.executescript("PRAGMA journal_mode=WAL; CREATE TABLE kept (value)")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data_dir.glob("toolflow.sqlite3*")}
    assert modes == {f"toolflow.sqlite3{ending}": 0o600 for ending in ("", "-wal", "-shm")}


def test_processes_that_start_at_the_same_time_agree_on_one_secret_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            path = tmp_path / f"key-{number}"
            keys = list(pool.map(read_secret_key, ["TOOLFLOW_UNSET"] * 8, [path] * 8))
            assert len(set(keys)) == 1
            assert list(tmp_path.glob(f"{path.name}*")) == [path]


def test_an_empty_secret_key_file_is_named(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "secret_key").touch()
    with pytest.raises(ImproperlyConfigured, match="secret_key holds 0 characters"):
        read_settings(data_dir)


GROQ = {"TOOLFLOW_PROVIDERS": "groq", "TOOLFLOW_PROVIDER_GROQ_BASE_URL": "https://api.groq.example/openai/v1"}


WRONG = {
    "TOOLFLOW_ENV": ["prod"],
    "TOOLFLOW_DEBUG": ["maybe"],
    "TOOLFLOW_WORKERS": ["1", "two", "1.5", "65"],
    "TOOLFLOW_STOP_SECONDS": ["-1"],
    "TOOLFLOW_TEMPERATURE": ["nan", "2.1"],
    "TOOLFLOW_PROVIDER": ["azure", "openai"],
    "OPENAI_BASE_URL": ["localhost:8080"],
    "TOOLFLOW_PLUGINS": ["audits.py, my-audits"],
    "TOOLFLOW_TIME_ZONE": ["Vienna", "../../etc"],
    "TOOLFLOW_CSRF_TRUSTED_ORIGINS": ["flows.example.com"],
    "TOOLFLOW_TRUSTED_PROXIES": ["127.0.0.1, proxy"],
    "TOOLFLOW_URL_PREFIX": ["toolflow"],
    "TOOLFLOW_WORKER_METRICS_HOST": ["here"],
    "TOOLFLOW_WEBHOOK_ALLOW": ["http://hooks.example.com", "169.254.169.254:80"],
    "TOOLFLOW_OIDC_GROUPS": ["staff", "staff="],
    "TOOLFLOW_SECRET_KEY": ["short"],
    "DATABASE_URL": ["mysql://me:hunter2@host/name", "sqlite://", "postgres://me:hunter2@host:many/name"],
    "TOOLFLOW_REDIS_URL": ["http://me:hunter2@host"],
    "TOOLFLOW_DATA_DIR": ["/dev/null/var"],
    "TOOLFLOW_API": ["both"],
    "TOOLFLOW_HEADERS": ["hunter2", '["hunter2"]', '{"X-Key": 7}', '{"X Key": "hunter2"}', '{"X-Key": "a\\nb"}'],
    # With “ft” names of fine-tuned models begin.
    "TOOLFLOW_PROVIDERS": ["Groq", "my_groq", "ft"],
    "TOOLFLOW_PROVIDER_GROQ_BASE_URL": ["groq", ""],
    "TOOLFLOW_PROVIDER_GROQ_API": ["completions"],
    "TOOLFLOW_PROVIDER_GROQ_HEADERS": ["X-Key: hunter2"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_variable_gets_one_sentence_that_names_it_without_secrets(
    data_dir: Path, name: str, value: str
) -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        read_settings(**{"data_dir": data_dir, **GROQ, name: value})
    sentence = str(raised.value)
    assert sentence.startswith(name) and sentence.endswith(".") and "\n" not in sentence
    assert "hunter2" not in sentence


def test_each_provider_has_variables_of_its_own(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{KEY}\n")
    found = read_settings(
        data_dir,
        OPENAI_API_KEY="sk-default",
        TOOLFLOW_API="chat",
        TOOLFLOW_HEADERS='{"X-Team": "research"}',
        TOOLFLOW_PROVIDERS="groq, my-vllm",
        TOOLFLOW_PROVIDER_GROQ_BASE_URL="https://api.groq.example/openai/v1",
        TOOLFLOW_PROVIDER_GROQ_API_KEY_FILE=str(file),
        TOOLFLOW_PROVIDER_MY_VLLM_BASE_URL="http://localhost:8000/v1",
        TOOLFLOW_PROVIDER_MY_VLLM_API="responses",
        TOOLFLOW_PROVIDER_MY_VLLM_HEADERS='{"X-Tenant": "7"}',
    )
    groq, vllm = found["TOOLFLOW_PROVIDERS"].values()
    assert (groq.name, groq.base_url, groq.api_key, groq.api, groq.headers) == (
        *("groq", "https://api.groq.example/openai/v1", KEY, "auto", {}),
    )
    assert (vllm.name, vllm.place, vllm.api_key, vllm.api, vllm.headers) == (
        *("my-vllm", "localhost:8000", "", "responses", {"X-Tenant": "7"}),
    )
    assert (found["TOOLFLOW_API"], found["TOOLFLOW_API_HEADERS"]) == ("chat", {"X-Team": "research"})
    assert KEY not in repr(found["TOOLFLOW_PROVIDERS"])


def test_a_command_says_what_is_wrong_in_one_sentence_and_exits_with_2(data_dir: Path) -> None:
    done = start_command("run_flow", data_dir=data_dir, TOOLFLOW_DEBUG="maybe")
    assert (done.returncode, done.stderr) == (2, "TOOLFLOW_DEBUG is “maybe”; it must be true or false.\n")


def test_an_env_file_counts_where_the_environment_says_nothing(data_dir: Path, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text('# ours\n\nTOOLFLOW_MODEL="from-file"\nexport TOOLFLOW_WORKERS=3\n')
    found = read_settings(data_dir, TOOLFLOW_ENV_FILE=str(env_file), TOOLFLOW_MODEL="from-environment")
    assert (found["TOOLFLOW_MODEL"], found["TOOLFLOW_WORKERS"]) == ("from-environment", 3)
    # A line that can't be read is named and not shown.
    env_file.write_text(f"TOOLFLOW_WORKERS=3\nOPENAI_API_KEY = {KEY}\n")
    with pytest.raises(ImproperlyConfigured, match=f"^Line 2 of {env_file} ") as raised:
        read_settings(data_dir, TOOLFLOW_ENV_FILE=str(env_file))
    assert KEY not in str(raised.value)
    with pytest.raises(ImproperlyConfigured, match="does not exist"):
        read_settings(data_dir, TOOLFLOW_ENV_FILE=str(tmp_path / "other"))


def test_keys_and_passwords_are_on_no_debug_page(data_dir: Path) -> None:
    found = read_settings(
        data_dir,
        OPENAI_API_KEY=KEY,
        TOOLFLOW_HEADERS=f'{{"X-Secret": "{KEY}"}}',
        TOOLFLOW_PROVIDERS="groq",
        TOOLFLOW_PROVIDER_GROQ_BASE_URL="https://api.groq.example/v1",
        TOOLFLOW_PROVIDER_GROQ_API_KEY=KEY,
        TOOLFLOW_PROVIDER_GROQ_HEADERS=f'{{"X-Secret": "{KEY}"}}',
        DATABASE_URL="postgres://me:hidden-1@db.example.com/toolflow",
        TOOLFLOW_REDIS_URL="redis://:hidden-2@redis.example.com/0",
    )
    cleanse = SafeExceptionReporterFilter().cleanse_setting
    shown = str([cleanse(name, value) for name, value in found.items() if name.isupper()])
    assert "redis.example.com" in shown
    assert not [secret for secret in (KEY, "hidden-1", "hidden-2", found["SECRET_KEY"]) if secret in shown]


def test_a_postgres_that_vanishes_is_noticed_within_half_a_minute_and_the_web_server_has_a_pool(
    data_dir: Path, postgres_url: str
) -> None:
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    code = f"""
from django.db import connection
with connection.cursor() as cursor:
    for name in {(*names, "idle_in_transaction_session_timeout")!r}:
        cursor.execute(f"SHOW {{name}}")
        print(cursor.fetchone()[0])
import toolflow_site.asgi
print(*connection.settings_dict["OPTIONS"]["pool"].values())
"""
    arguments = ("shell", "--no-imports", "--command", code)
    done = start_command(*arguments, data_dir=data_dir, DATABASE_URL=postgres_url)
    assert done.stdout.split() == ["10", "5", "3", "25000", "30s", "1", "24", "10"], done.stderr


def test_options_in_the_address_of_the_database_win_over_ours(data_dir: Path) -> None:
    url = "postgres://me:secret@db.example.com/toolflow?connect_timeout=3&sslmode=require&conn_max_age=5"
    database = read_settings(data_dir, DATABASE_URL=url)["DATABASES"]["default"]
    assert (database["OPTIONS"]["connect_timeout"], database["OPTIONS"]["sslmode"]) == (3, "require")
    assert (database["CONN_MAX_AGE"], database["CONN_HEALTH_CHECKS"]) == (5, True)
    assert "tcp_keepalives_idle=10" in database["OPTIONS"]["options"]
