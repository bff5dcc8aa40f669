"""Commands on the terminal, where they refuse what they can't do. What they do is in tests/journeys."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from runs.management.commands.serve import refuse_taken_port
from runs.management.commands.up import create_first_admin, lock_data_folder
from runs.models import Run
from tests.engine.builders import make_flow
from tests.runs.builders import make_version


@pytest.mark.django_db
class TestRunFlow:
    def refusal(self, *arguments: str) -> CommandError:
        with pytest.raises(CommandError) as refusal:
            call_command("run_flow", *arguments)
        assert not Run.objects.exists()
        return refusal.value

    def test_a_flow_that_does_not_exist_is_refused_with_the_names_of_those_that_do(self, tmp_path: Path) -> None:
        make_version()
        refusal = self.refusal("exmaple", "--input", str(tmp_path / "input.json"))
        assert str(refusal) == "There is no flow “exmaple”. Flows that can be run: example."
        assert refusal.returncode == 3

    @pytest.mark.parametrize(
        ("text", "says"),
        [('{"topic": ', "Line 1"), ("[1]", "object"), ('{"topic": NaN}', "NaN"), ("", "The text is empty")],
    )
    def test_input_that_is_no_json_object_is_refused_and_says_where(self, tmp_path: Path, text: str, says: str) -> None:
        make_version()
        path = tmp_path / "input.json"
        path.write_text(text)
        refusal = self.refusal("example", "--input", str(path))
        assert says in str(refusal)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        make_version()
        assert "nothing.json" in str(self.refusal("example", "--input", str(tmp_path / "nothing.json")))

    def test_input_that_does_not_fit_the_schema_is_refused_with_each_path(self, tmp_path: Path) -> None:
        schema = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic", "tone"]}
        make_version(make_flow(input_schema=schema))
        path = tmp_path / "input.json"
        path.write_text('{"topic": 5}')
        refusal = str(self.refusal("example", "--input", str(path)))
        assert "/topic" in refusal and "tone" in refusal


class TestUp:
    def test_a_port_that_is_taken_is_refused_with_another_to_try(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with pytest.raises(CommandError, match=f"make up PORT={port + 1}"):
                refuse_taken_port("127.0.0.1", port)

    def test_a_second_start_in_the_same_folder_is_refused_until_the_first_is_done(
        self, settings: Any, tmp_path: Path
    ) -> None:
        settings.TOOLFLOW_DATA_DIR = tmp_path
        with lock_data_folder(), pytest.raises(CommandError, match="Another start of ToolFlow is under way in"):
            call_command("up")
        lock_data_folder().close()

    @pytest.mark.django_db
    def test_the_admin_user_is_made_once_and_the_password_shown_once(self) -> None:
        assert create_first_admin()
        assert create_first_admin() is None
