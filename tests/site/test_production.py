"""``TOOLFLOW_ENV=production``: what it refuses, says all at once, and turns on by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from tests.site.conftest import PRODUCTION as RIGHT
from tests.site.test_settings import make_environment, read_settings, start_command
from toolflow_site.production import find_static_problem

KEY = RIGHT["TOOLFLOW_SECRET_KEY"]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "var"


def test_with_nothing_set_everything_is_refused_at_once_a_sentence_each(data_dir: Path) -> None:
    done = start_command("check", data_dir=data_dir, TOOLFLOW_ENV="production", TOOLFLOW_DEBUG="true")
    assert done.returncode == 2
    _, *others = done.stderr.splitlines()
    named = ["TOOLFLOW_SECRET_KEY", "TOOLFLOW_DEBUG", "OPENAI_API_KEY", "TOOLFLOW_ALLOWED_HOSTS", "TOOLFLOW_TRUSTED"]
    assert len(others) == len(named)
    for line, name in zip(others, named, strict=True):
        assert line.startswith("- ") and name in line and line.endswith(".")
    assert not (data_dir / "secret_key").exists()


@pytest.mark.parametrize(
    ("processes", "changes", "sentence"),
    [
        ("1", {"TOOLFLOW_ALLOWED_HOSTS": "*"}, "TOOLFLOW_ALLOWED_HOSTS must name"),
        # A supervisor that saw nothing but a dead child would put the next one in its place for ever.
        pytest.param("2", {"TOOLFLOW_STATIC_ROOT": "nowhere"}, "not been collected into", marks=pytest.mark.nightly),
    ],
)
def test_a_server_that_is_started_by_hand_says_the_same_and_ends(
    data_dir: Path, processes: str, changes: dict[str, str], sentence: str
) -> None:
    command = [sys.executable, "-m", "uvicorn", "toolflow_site.asgi:application", "--port", "0"]
    done = subprocess.run(
        [*command, "--workers", processes],
        cwd=settings.BASE_DIR,
        env=make_environment(data_dir, {**RIGHT, **changes}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


UNSAFE = {
    "TOOLFLOW_SECRET_KEY": ["", KEY[:49], "abcd" * 20, f"django-insecure-{KEY}"],
    "TOOLFLOW_SECRET_KEY_FALLBACKS": [f"{KEY[::-1]} {KEY[:40]}"],
    "TOOLFLOW_DEBUG": ["yes"],
    "TOOLFLOW_PROVIDER": [""],
    "TOOLFLOW_ALLOWED_HOSTS": ["", "flows.example.com,*"],
    "TOOLFLOW_TRUSTED_PROXIES": ["", "0.0.0.0/0", "127.0.0.1,64.0.0.0/7", "2000::/3", "::ffff:0:0/96"],
    "TOOLFLOW_WEBHOOK_ALLOW": ["0.0.0.0/0", "hooks.example.com,128.0.0.0/1:8443", "[fc00::/7]:*"],
    "TOOLFLOW_METRICS_TOKEN": ["x"],
    "OPENAI_BASE_URL": ["http://models.example.com/v1", "http://8.8.8.8:8080/v1"],
    "TOOLFLOW_PROVIDER_GROQ_BASE_URL": ["http://models.example.com/v1"],
    "TOOLFLOW_TRACES": ["http://collector.example.com:4318"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in UNSAFE.items() for text in texts])
def test_each_unsafe_setting_is_refused_by_itself(data_dir: Path, name: str, text: str) -> None:
    beside = {"TOOLFLOW_PROVIDER_GROQ_BASE_URL": {"TOOLFLOW_PROVIDERS": "groq"}}
    beside["TOOLFLOW_TRACES"] = {"TOOLFLOW_TRACE_CONTENT": "true"}
    with pytest.raises(ImproperlyConfigured) as raised:
        read_settings(data_dir, **{**RIGHT, **beside.get(name, {}), name: text})
    _, sentence = str(raised.value).splitlines()
    assert name in sentence
    assert not any(key in sentence for key in (text.split() if "SECRET_KEY" in name else ()))


SAFE = {
    "TOOLFLOW_TRUSTED_PROXIES": ["10.0.0.0/8,fd00::/16,::ffff:10.0.0.0/104"],
    "TOOLFLOW_WEBHOOK_ALLOW": ["*.internal.example.com,10.0.0.0/8:8443,localhost:9000"],
    "TOOLFLOW_METRICS_TOKEN": ["x" * 24],
    "OPENAI_BASE_URL": [
        *("https://models.example.com/v1", "http://[::1]:8080/v1", "http://10.1.2.3/v1", "http://vllm:8000/v1"),
        *("http://vllm.models.svc.cluster.local/v1", "http://trusted.example.com/v1"),
    ],
    "TOOLFLOW_TRACES": ["http://collector.example.com:4318"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in SAFE.items() for text in texts])
def test_what_is_safe_enough_is_taken(data_dir: Path, name: str, text: str) -> None:
    variables = {**RIGHT, "TOOLFLOW_PLAIN_HTTP_HOSTS": "trusted.example.com", name: text}
    assert read_settings(data_dir, **variables)["TOOLFLOW_ENV"] == "production"


@pytest.mark.parametrize(
    ("variables", "is_secure", "hsts"),
    [
        ({"TOOLFLOW_ALLOWED_HOSTS": "*", "TOOLFLOW_DEBUG": "true"}, False, 0),
        (RIGHT, True, 3600),
        ({**RIGHT, "TOOLFLOW_HSTS_SECONDS": "31536000", "TOOLFLOW_HSTS_SUBDOMAINS": "true"}, True, 31_536_000),
        # A network without TLS has to be named as one.
        ({**RIGHT, "TOOLFLOW_HTTPS": "false", "TOOLFLOW_TRUSTED_PROXIES": ""}, False, 0),
    ],
    ids=["development", "production", "hsts", "plain"],
)
def test_cookies_redirects_and_hsts_follow_from_production(
    data_dir: Path, variables: dict[str, str], is_secure: bool, hsts: int
) -> None:
    found = read_settings(data_dir, **variables)
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT")
    assert [found[name] for name in names] == [is_secure] * 3
    assert (found["SECURE_HSTS_SECONDS"], found["SECURE_HSTS_INCLUDE_SUBDOMAINS"]) == (hsts, hsts > 3600)


def test_django_s_own_checks_of_deployments_find_nothing(data_dir: Path, collected: Path) -> None:
    variables = {**RIGHT, "TOOLFLOW_STATIC_ROOT": str(collected)}
    done = start_command("check", "--deploy", "--fail-level", "WARNING", data_dir=data_dir, **variables)
    assert (done.returncode, "WARNINGS" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("TOOLFLOW_SECRET_KEY", KEY, "SECRET_KEY"),
        ("TOOLFLOW_SECRET_KEY_FALLBACKS", KEY[::-1], "SECRET_KEY_FALLBACKS"),
        ("TOOLFLOW_HEADERS", '{"X-Key": "hidden"}', "TOOLFLOW_API_HEADERS"),
        ("OPENAI_API_KEY", "sk-file", "TOOLFLOW_OPENAI_API_KEY"),
        ("DATABASE_URL", "postgres://me:hidden@db.example.com/toolflow", "DATABASES"),
        ("TOOLFLOW_REDIS_URL", "redis://:hidden@host/5", "Q_CLUSTER"),
        ("TOOLFLOW_METRICS_TOKEN", KEY[:24], "TOOLFLOW_METRICS_TOKEN"),
        ("TOOLFLOW_OIDC_CLIENT_SECRET", "ours", "OIDC_RP_CLIENT_SECRET"),
    ],
)
def test_a_secret_may_lie_in_a_file(tmp_path: Path, data_dir: Path, name: str, value: str, setting: str) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{value}\n")
    found = read_settings(data_dir, **{**RIGHT, name: "", f"{name}_FILE": str(file)})
    assert found[setting] == value or (value if "hidden" not in value else "hidden") in str(found[setting])


@pytest.mark.parametrize("text", [None, "\n"])
def test_a_file_that_holds_no_secret_is_named(tmp_path: Path, data_dir: Path, text: str | None) -> None:
    file = tmp_path / "secret"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ImproperlyConfigured, match=f"OPENAI_API_KEY_FILE is “{file}”"):
        read_settings(data_dir, OPENAI_API_KEY_FILE=str(file))


def test_a_secret_has_one_place(data_dir: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="OPENAI_API_KEY and OPENAI_API_KEY_FILE are both set"):
        read_settings(data_dir, OPENAI_API_KEY="sk-1", OPENAI_API_KEY_FILE=os.devnull)


def look_for_static_files(root: Path) -> str | None:
    return find_static_problem(SimpleNamespace(WHITENOISE_USE_FINDERS=False, STATIC_ROOT=root))


def test_static_files_that_are_missing_or_of_another_version_are_noticed(tmp_path: Path, collected: Path) -> None:
    assert look_for_static_files(collected) is None
    assert "have not been collected" in (look_for_static_files(tmp_path) or "")
    text = (collected / "staticfiles.json").read_text()
    (tmp_path / "staticfiles.json").write_text(text.replace('"toolflow/logo.svg"', '"toolflow/old.svg"'))
    assert "toolflow/logo.svg" in (look_for_static_files(tmp_path) or "")
