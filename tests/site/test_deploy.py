"""The files in ``deploy/``: checked statically, since nothing here starts systemd or containers."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from runs.api import events
from runs.management.commands.serve import KEEP_ALIVE_TIMEOUT, REQUEST_STOP_TIMEOUT
from runs.queue_processes.process_tree import EXIT_TIMEOUT, FORCED_STOP_TIMEOUT
from tests.site.test_settings import read_settings
from toolflow_site.request_handler import MAX_FULL_BODIES

ROOT = Path(settings.BASE_DIR)
DEPLOY = ROOT / "deploy"

STOP_TIMEOUT = settings.TOOLFLOW_STOP_SECONDS + FORCED_STOP_TIMEOUT + EXIT_TIMEOUT
"""Seconds that a worker may take to stop."""
OBSERVABILITY = {
    "TOOLFLOW_LOG_FORMAT", "TOOLFLOW_LOG_LEVEL", "TOOLFLOW_ACCESS_LOG", "TOOLFLOW_METRICS_TOKEN",
    "TOOLFLOW_WORKER_METRICS_PORT", "TOOLFLOW_TRACES", "TOOLFLOW_TRACE_CONTENT",
}  # fmt: skip


def known_variables() -> set[str]:
    """The variables that ToolFlow reads."""
    return set(re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))


def read_unit(path: Path) -> ConfigParser:
    # Some names may be repeated.
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keeps the case of names; the documented way
    unit.read_string(path.read_text(encoding="utf-8"))
    return unit


def read_compose() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return compose


def our_services() -> dict[str, dict[str, Any]]:
    """The services that run our image."""
    return {name: service for name, service in read_compose()["services"].items() if service["image"] == "toolflow"}


def read_template() -> dict[str, str]:
    """The variables that ``deploy/.env`` is to hold, with the values that the template gives them."""
    text = (DEPLOY / "compose.env.example").read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))


def to_seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([sm]?)", text).groups()  # type: ignore[union-attr]  # a wrong one should fail
    return int(number) * (60 if unit == "m" else 1)


def find_commands(text: str) -> set[str]:
    return set(re.findall(r"manage\.py[\s\",]+([a-z_]+)", text))


def to_bytes(text: str) -> int:
    """A size as nginx writes it."""
    number, unit = re.fullmatch(r"(\d+)([km]?)", text).groups()  # type: ignore[union-attr]  # a wrong one should fail
    return int(number) * {"": 1, "k": 1024, "m": 1024**2}[unit]


def test_variables_and_commands_of_all_files_exist() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert set(re.findall(r"\b(?:TOOLFLOW|OPENAI|DATABASE)_[A-Z_]*[A-Z]\b", text)) <= known_variables(), path
            assert find_commands(text) <= set(get_commands()), path


def test_units_run_as_a_user_who_may_write_to_one_folder_and_come_back_after_every_end() -> None:
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        unit = read_unit(path)
        service = unit["Service"]
        assert (service["User"], service["UMask"], service["NoNewPrivileges"]) == ("toolflow", "0077", "true")
        assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
        assert service["Environment"] == f"TOOLFLOW_DATA_DIR=/var/lib/{service['StateDirectory']}"
        if path.stem != "toolflow-nightly":
            assert (service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
            assert service["EnvironmentFile"] == "/etc/toolflow/env"
    # Static files are collected before the website starts; requests and calls may end.
    web, worker = (read_unit(DEPLOY / f"systemd/toolflow-{name}.service")["Service"] for name in ("web", "worker"))
    assert (find_commands(web["ExecStartPre"]), find_commands(web["ExecStart"])) == ({"collectstatic"}, {"serve"})
    assert int(web["TimeoutStopSec"]) > REQUEST_STOP_TIMEOUT
    assert (worker["KillMode"], worker["OOMPolicy"]) == ("mixed", "continue")
    assert int(worker["TimeoutStopSec"]) > STOP_TIMEOUT


class TestCompose:
    def test_everything_it_asks_for_stands_in_the_template(self) -> None:
        text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
        required = set(re.findall(r"\$\{([A-Z_]+):\?", text))
        asked = set(re.findall(r"\$\{([A-Z_]+)", text))
        assert required <= set(read_template()) <= asked
        assert asked - {"POSTGRES_PASSWORD"} <= known_variables()

    def test_with_the_template_filled_in_production_takes_the_settings(self, tmp_path: Path) -> None:
        secrets = {"POSTGRES_PASSWORD": "secret", "TOOLFLOW_SECRET_KEY": "0123456789" * 5, "OPENAI_API_KEY": "sk-1"}
        values = {**read_template(), **secrets}

        def fill_in(text: str) -> str:
            return re.sub(
                r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}",
                lambda found: values.get(found[1]) or (found[3] if found[2] == "-" else ""),
                text,
            )

        environment = {name: fill_in(value) for name, value in our_services()["worker"]["environment"].items()}
        assert environment["DATABASE_URL"] == "postgres://toolflow:secret@db:5432/toolflow"
        found = read_settings(tmp_path, **environment)
        assert (found["TOOLFLOW_ENV"], found["SECURE_SSL_REDIRECT"]) == ("production", True)

    def test_nothing_starts_before_what_it_needs(self) -> None:
        services = our_services()
        for name in ("web", "worker"):
            conditions = {other: needed["condition"] for other, needed in services[name]["depends_on"].items()}
            assert conditions["migrate"] == "service_completed_successfully"
            assert conditions["db"] == conditions["redis"] == "service_healthy"
        assert services["migrate"]["depends_on"]["db"]["condition"] == "service_healthy"
        assert services["migrate"]["restart"] == "no"
        assert all("healthcheck" in read_compose()["services"][name] for name in ("db", "redis", "worker"))

    def test_our_containers_can_do_no_more_than_they_must(self, tmp_path: Path) -> None:
        max_body = read_settings(tmp_path)["TOOLFLOW_MAX_BODY"]
        for service in our_services().values():
            environment = service["environment"]
            assert environment["TOOLFLOW_ENV"] == "production"
            assert service["read_only"] and service["init"]
            assert service["cap_drop"] == ["ALL"]
            # The locks in the data folder are those of one host: no two containers share it.
            assert "volumes" not in service
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
            # What they write to memory is bounded, and bodies that don't fit into memory have room there.
            found = [re.fullmatch(r"(/[^:]+):size=(\d+)m(,.*)?", line) for line in service["tmpfs"]]
            sizes = {match[1]: int(match[2]) * 2**20 for match in found if match}
            assert len(sizes) == len(found)
            processes = int(re.sub(r"\D", "", environment["TOOLFLOW_WEB_PROCESSES"]))
            assert sizes["/" + "tmp"] > processes * MAX_FULL_BODIES * max_body
        worker = our_services()["worker"]
        assert worker["deploy"]["replicas"] == 2
        assert to_seconds(worker["stop_grace_period"]) > STOP_TIMEOUT

    @pytest.mark.parametrize("name", ["web", "worker"])
    def test_what_operators_may_turn_on_is_handed_on(self, name: str) -> None:
        found = our_services()[name]
        # Empty where it was not set: then it is as if it were not there.
        handed_on = {setting for setting, value in found["environment"].items() if value == f"${{{setting}:-}}"}
        assert handed_on >= OBSERVABILITY
        assert found["env_file"] == [{"path": "toolflow.env", "required": False}]


class TestImage:
    TEXT = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")

    def test_what_is_copied_exists_and_nothing_else_is_sent_to_the_builder(self) -> None:
        lines = re.findall(r"^COPY (?!--from)(.*) \S+$", self.TEXT, re.MULTILINE)
        sources = {source for line in lines for source in line.split()}
        assert [source for source in sources if not (ROOT / source).exists()] == []
        ignore = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
        sent = set(re.findall(r"^!(\S+)$", ignore, re.MULTILINE))
        assert {name.partition("/")[0] for name in sent} == {source.partition("/")[0] for source in sources}
        assert [name for name in sent if "/" in name and name not in sources] == []

    def test_it_runs_as_a_user_without_rights_and_holds_all_that_django_serves(self) -> None:
        last = self.TEXT.rpartition("\nFROM ")[2]
        assert last.index("\nUSER toolflow\n") < last.index("\nHEALTHCHECK ") < last.index("\nCMD ")
        assert find_commands(self.TEXT) == {"collectstatic", "serve"}
        copied = set(re.findall(r"^COPY (\w+) \w+$", self.TEXT, re.MULTILINE))
        served: list[Any] = [*settings.STATICFILES_DIRS, ROOT / "templates"]
        folders = {Path(folder).relative_to(ROOT).parts[0] for folder in served}
        assert folders | {"flows", "runs", "toolflow_site"} <= copied


class TestNginx:
    def read(self, name: str) -> str:
        text = (DEPLOY / "nginx" / f"{name}.conf").read_text(encoding="utf-8")
        return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)

    def test_headers_times_and_sizes_go_with_those_of_the_server(self, tmp_path: Path) -> None:
        text = self.read("toolflow-proxy")
        # What a client says of itself is never handed on alone.
        headers = dict(re.findall(r"proxy_set_header (\S+) (\S+);", text))
        expected = {
            "X-Forwarded-For": "$proxy_add_x_forwarded_for",
            "X-Forwarded-Proto": "$scheme",
            "Host": "$http_host",
        }
        assert headers | expected == headers
        (body,) = re.findall(r"client_max_body_size (\S+);", text)
        assert to_bytes(body) >= read_settings(tmp_path)["TOOLFLOW_MAX_BODY"]
        (timeout,) = re.findall(r"proxy_read_timeout (\d+)s;", text)
        assert int(timeout) > max(events.MAX_WAIT, 2 * events.HEARTBEAT_INTERVAL)
        # nginx closes idle connections after 60 seconds by itself.
        assert KEEP_ALIVE_TIMEOUT > 60
