"""Files that are written or handed out: no name of a flow, a file or a user leads out of the folder that was meant."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from flows.engine.errors import ProblemsError
from flows.engine.spec import FlowSpec
from flows.models import Flow
from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from tests.engine.builders import make_flow
from tests.runs.retention.aged_runs import store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

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


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_makes_no_flow_of_such_a_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    write_archive(path, run_ids=[run.pk for run in store_aged_runs(4)])
    known = Flow.objects.count()
    *lines, last = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for line in lines:
        for part in line.values():
            if isinstance(part, dict) and "flow" in part:
                part["flow"] = name
                if isinstance(part.get("spec"), dict):
                    part["spec"]["name"] = name
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    # Whoever changes a file can make its checksum right, too.
    last["end"]["sha256"] = hashlib.sha256(content).hexdigest()
    path.write_bytes(gzip.compress(content + json.dumps(last).encode() + b"\n"))
    restored = restore_archive(path)
    assert (restored.runs, restored.present) == (0, 0)
    assert "the version of the flow can’t be read" in str(restored.misfits)
    assert Flow.objects.count() == known


def test_archives_of_a_purge_lie_in_the_folder_that_was_named(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    store_aged_runs(8)
    call_command("purge_history", before=timezone.now().date(), archive=folder, stdout=io.StringIO())
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    names = [path.name for path in folder.iterdir()]
    assert names and all(name.endswith(".jsonl.gz") and ".runs." in name for name in names)


@pytest.mark.parametrize("command", ["backup", "archive_history"])
def test_commands_overwrite_nothing_that_is_there(command: str, tmp_path: Path) -> None:
    there = tmp_path / "notes.txt"
    there.write_text("mine")
    arguments: list[Any] = (
        ["--before", "2024-11-21", "--out", str(there)] if command == "archive_history" else [str(there)]
    )
    with pytest.raises(CommandError):
        call_command(command, *arguments, stdout=io.StringIO())
    assert there.read_text() == "mine"
