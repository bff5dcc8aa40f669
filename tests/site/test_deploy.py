"""The files in ``deploy/``: checked statically, since nothing here starts systemd or containers."""

from __future__ import annotations

import json
import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from runs.queue_processes.process_tree import DEATH_PATIENCE, find_stop_patience
from tests.site.test_settings import start_command

ROOT = Path(settings.BASE_DIR)
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))

IMAGE_VARIABLES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}
"""What the image of PostgreSQL reads."""


def known_variables() -> set[str]:
    """The variables that ToolFlow reads."""
    return set(re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))


def read_unit(path: Path) -> ConfigParser:
    unit = ConfigParser(interpolation=None, strict=True)
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


class TestUnits:
    def test_there_is_one_for_the_website_and_one_for_the_worker(self) -> None:
        assert [path.name for path in UNITS] == ["toolflow-web.service", "toolflow-worker.service"]

    @pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
    def test_variables_and_commands_exist(self, path: Path) -> None:
        service = read_unit(path)["Service"]
        names = set(re.findall(r"([A-Z_]+)=", service["Environment"]))
        assert names and names <= known_variables()
        named = set(re.findall(r"\b(?:TOOLFLOW|OPENAI|DATABASE)_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert named <= known_variables()
        assert find_commands(path.read_text(encoding="utf-8")) <= set(get_commands())

    @pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
    def test_it_runs_as_a_user_of_its_own_and_comes_back_after_every_end(self, path: Path) -> None:
        unit = read_unit(path)
        service = unit["Service"]
        assert (service["User"], service["UMask"], service["NoNewPrivileges"]) == ("toolflow", "0077", "true")
        assert (service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
        assert service["Environment"] == f"TOOLFLOW_DATA_DIR=/var/lib/{service['StateDirectory']}"

    def test_a_stop_of_the_worker_lets_its_calls_end(self) -> None:
        service = read_unit(DEPLOY / "systemd/toolflow-worker.service")["Service"]
        assert service["KillMode"] == "mixed"
        assert int(service["TimeoutStopSec"]) > find_stop_patience() + DEATH_PATIENCE
        assert service["OOMPolicy"] == "continue"


class TestCompose:
    def test_variables_exist(self) -> None:
        for name, service in read_compose()["services"].items():
            known = known_variables() if name in our_services() else IMAGE_VARIABLES
            assert set(service.get("environment", {})) <= known, name

    def test_everything_it_asks_for_stands_in_the_template(self) -> None:
        text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
        required = set(re.findall(r"\$\{([A-Z_]+):\?", text))
        asked = set(re.findall(r"\$\{([A-Z_]+)", text))
        assert required <= set(read_template()) <= asked
        assert asked - {"POSTGRES_PASSWORD"} <= known_variables()

    def test_with_the_template_filled_in_the_checks_find_nothing(self, tmp_path: Path) -> None:
        values = {**read_template(), "POSTGRES_PASSWORD": "secret", "TOOLFLOW_SECRET_KEY": "0123456789" * 5}

        def fill_in(text: str) -> str:
            return re.sub(
                r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}",
                lambda found: values.get(found[1]) or (found[3] if found[2] == "-" else ""),
                text,
            )

        environment = {name: fill_in(value) for name, value in our_services()["worker"]["environment"].items()}
        assert environment["DATABASE_URL"] == "postgres://toolflow:secret@db:5432/toolflow"
        done = start_command("check", "--fail-level", "WARNING", data_dir=tmp_path, **environment)
        assert (done.returncode, done.stderr) == (0, "")

    def test_commands_exist(self) -> None:
        commands = {word for service in our_services().values() for word in find_commands(json.dumps(service))}
        assert commands == {"migrate", "run_worker", "workers"}
        assert commands <= set(get_commands())

    def test_a_stop_of_a_worker_lets_its_calls_end(self) -> None:
        assert to_seconds(our_services()["worker"]["stop_grace_period"]) > find_stop_patience() + DEATH_PATIENCE

    def test_our_containers_can_do_no_more_than_they_must(self) -> None:
        for service in our_services().values():
            assert service["read_only"] and service["init"]
            assert service["cap_drop"] == ["ALL"]
            # The locks in the data folder are those of one host: no two containers share it.
            assert "volumes" not in service
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))

    def test_images_are_named_without_a_host(self) -> None:
        assert all("/" not in service["image"] for service in read_compose()["services"].values())


class TestImage:
    def read(self) -> str:
        return (DEPLOY / "Dockerfile").read_text(encoding="utf-8")

    def test_what_is_copied_exists_and_nothing_else_is_sent_to_the_builder(self) -> None:
        sources = {
            source
            for line in re.findall(r"^COPY (?!--from)(.*) \S+$", self.read(), re.MULTILINE)
            for source in line.split()
        }
        assert [source for source in sources if not (ROOT / source).exists()] == []
        ignore = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
        sent = set(re.findall(r"^!(\S+)$", ignore, re.MULTILINE))
        assert {name.partition("/")[0] for name in sent} == {source.partition("/")[0] for source in sources}
        assert [name for name in sent if "/" in name and name not in sources] == []

    def test_it_runs_as_nobody_special_with_variables_that_exist(self) -> None:
        last = self.read().rpartition("\nFROM ")[2]
        assert re.search(r"^USER toolflow$", last, re.MULTILINE)
        assert last.index("\nUSER ") < last.index("\nCMD ")
        assert set(re.findall(r"\b(TOOLFLOW_[A-Z_]+)=", last)) <= known_variables()

    def test_all_that_django_serves_is_in_it(self) -> None:
        copied = set(re.findall(r"^COPY (\w+) \w+$", self.read(), re.MULTILINE))
        folders = {Path(folder).relative_to(ROOT).parts[0] for folder in settings.STATICFILES_DIRS}
        folders |= {Path(folder).relative_to(ROOT).parts[0] for folder in settings.TEMPLATES[0]["DIRS"]}
        assert folders | {"flows", "runs", "toolflow_site"} <= copied
