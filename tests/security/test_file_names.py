"""Files that are written or handed out: no name of a flow, a file or a user leads out of the folder that was meant."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from flows.engine.errors import ProblemsError
from flows.engine.spec import FlowSpec
from flows.models import Flow
from tests.engine.builders import make_flow

pytestmark = pytest.mark.django_db

HOSTILE = ("../evil", "/tmp/evil", "..", "a/../../evil", "evil\0.gz", "evil\n", "C:\\evil", '"; filename="evil.exe')  # noqa: S108  # nothing is written


@pytest.mark.parametrize("name", HOSTILE)
def test_no_flow_has_such_a_name(name: str, client: Client) -> None:
    document = {**make_flow().to_document(), "name": name}
    with pytest.raises(ProblemsError):
        FlowSpec.from_document(document)
    client.force_login(User.objects.create_superuser("ada"))
    file = SimpleUploadedFile("flow.yaml", json.dumps(document).encode())
    client.post("/admin/flows/flow/upload/", {"file": file})
    assert not Flow.objects.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_an_uploaded_file_is_only_shown(name: str, client: Client, tmp_path: Path) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    file = io.BytesIO(b"name: [")
    file.name = name
    assert client.post("/admin/flows/flow/upload/", {"file": file}).status_code in {200, 400, 422}
    assert not list(tmp_path.iterdir())


def test_a_backup_overwrites_nothing_that_is_there(tmp_path: Path) -> None:
    there = tmp_path / "notes.txt"
    there.write_text("mine")
    with pytest.raises(CommandError):
        call_command("backup", str(there), stdout=io.StringIO())
    assert there.read_text() == "mine"
