"""Flows as files in the admin: download, upload with a look at what it does, import."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.utils.html import escape

from flows.examples import load_examples
from flows.flow_file import MAX_FILE_BYTES, SCHEMA_PATH, parse_flow, render_flow
from flows.models import Flow, FlowVersion
from tests.engine.builders import make_flow
from tests.flows.editor_page import PageReader
from tests.flows.loading import load_flow
from tests.flows.versioned import sign_in

UPLOAD = "/admin/flows/flow/upload/"


def load_spec(**fields: Any) -> FlowVersion:
    return load_flow(document=make_flow(**fields).to_document())


def make_text(**fields: Any) -> str:
    return render_flow(make_flow(**fields))


def post(client: Client, text: str = "", button: str = "_check", **fields: Any) -> HttpResponse:
    return client.post(UPLOAD, {"text": text, button: "", **fields})


def read_body(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def confirm(client: Client, preview: HttpResponse, button: str = "_import", **fields: Any) -> HttpResponse:
    """Press a button of a preview, with all that its form carries."""
    found = PageReader(preview.content.decode()).fields
    carried = {name: found[name] for name in ("text", "file_name", "latest", "note") if name in found}
    # As a browser sends text.
    carried["text"] = carried["text"].replace("\n", "\r\n")
    return client.post(UPLOAD, {**carried, button: "", **fields})


def test_a_flow_is_downloaded_in_its_latest_version_or_an_earlier_one(editor: Client) -> None:
    first = load_spec(title="Tea 🍵")
    second = load_spec(title="Cup")
    url = f"/admin/flows/flow/{first.flow_id}/download/"
    latest = editor.get(url)
    assert latest["Content-Type"] == "application/yaml; charset=utf-8"
    assert latest["Content-Disposition"] == 'attachment; filename="example.yaml"'
    assert parse_flow(read_body(latest)).digest == second.digest
    earlier = editor.get(url, {"version": "1"})
    assert earlier["Content-Disposition"] == 'attachment; filename="example-v1.yaml"'
    assert parse_flow(read_body(earlier)).digest == first.digest


def test_all_flows_come_in_one_archive(editor: Client, django_assert_num_queries: Any) -> None:
    load_examples()
    load_flow(document={**FlowVersion.objects.first().spec, "title": "Other"})  # type: ignore[union-attr]
    Flow.objects.filter(name="colour-theme").update(is_archived=True)
    with django_assert_num_queries(4):  # session, user, versions, the trail
        response = editor.get("/admin/flows/flow/download/")
    assert response["Content-Disposition"] == 'attachment; filename="flows.zip"'
    with zipfile.ZipFile(io.BytesIO(read_body(response))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    schema = editor.get("/admin/flows/flow/flow.schema.json")
    assert files.pop("flow.schema.json") == read_body(schema) == SCHEMA_PATH.read_bytes()
    assert schema["Content-Disposition"] == 'attachment; filename="flow.schema.json"'
    latest = {flow.name: flow.versions.first() for flow in Flow.objects.filter(is_archived=False)}
    assert {name: parse_flow(text).digest for name, text in files.items()} == {
        f"{name}.yaml": version.digest for name, version in latest.items() if version
    }


def test_a_new_flow_is_shown_and_then_made(editor: Client) -> None:
    file = SimpleUploadedFile("tea.yaml", b"\xef\xbb\xbf" + make_text(title="Tea").encode())
    preview = editor.post(UPLOAD, {"file": file})
    assert "Import “Tea” as a new flow?" in preview.content.decode()
    assert not Flow.objects.exists()
    response = confirm(editor, preview, note="  From the\n archive ")
    flow = Flow.objects.get()
    assert response["Location"] == f"/admin/flows/flow/{flow.pk}/change/"
    assert flow.live_version is not None
    assert (flow.live_version.note, flow.live_version.created_by) == ("From the archive", User.objects.get())
    entry = LogEntry.objects.get()
    assert (entry.is_addition(), entry.get_change_message()) == (True, "Imported version 1 from “tea.yaml”.")


def test_the_next_version_is_shown_with_what_it_changes_and_then_made(editor: Client) -> None:
    first = load_spec(description="Green tea")
    preview = post(editor, make_text(description="Black tea"))
    page = PageReader(preview.content.decode())
    assert "Import version 2 of “example”?" in page.text
    assert "Green" in page.text and "Black" in page.text
    response = confirm(editor, preview)
    assert response.status_code == 302
    flow = Flow.objects.get()
    assert (flow.versions.count(), flow.live_version) == (2, first)
    assert flow.description == "Black tea"
    assert LogEntry.objects.get().get_change_message() == "Imported version 2 from text."
    confirm(editor, post(editor, make_text(title="Tea")), "_make_live")
    flow.refresh_from_db()
    assert flow.live_version == flow.versions.get(number=3)


def test_all_mistakes_are_shown_with_their_lines_and_the_text_stays(editor: Client) -> None:
    text = "name: <b>tea</b>\ntitel: Tea\nsteps:\n  - name: Pour\n    compute: 5\n"
    response = post(editor, text, note="kept", file_name="tea.yaml")
    page = PageReader(response.content.decode())
    problems = response.context["upload"].problems
    assert [(placed.problem.line, placed.line) for placed in problems] == [
        (1, "name: <b>tea</b>"),
        (2, "titel: Tea"),
        (5, "compute: 5"),
    ]
    assert all(placed.problem.message in page.text for placed in problems)
    assert (page.fields["text"], page.fields["note"], page.fields["file_name"]) == (text, "kept", "tea.yaml")
    assert "<b>tea" not in response.content.decode()


@pytest.mark.parametrize("file", [b"name: caf\xe9", b"#" * (MAX_FILE_BYTES + 1), b"\x00\x01", None])
def test_what_is_no_file_of_text_is_refused(editor: Client, file: bytes | None) -> None:
    words = {
        None: "Choose a file",
        b"#": "The file is too large.",
        b"n": "The file is not UTF-8 here.",
        b"\x00": "U+0000",
    }
    fields = {} if file is None else {"file": SimpleUploadedFile("tea.yaml", file)}
    assert words[file and file[:1]] in editor.post(UPLOAD, fields).content.decode()


def test_a_version_that_was_made_meanwhile_is_not_run_over(editor: Client) -> None:
    load_spec(title="Tea")
    preview = post(editor, make_text(title="Mine"))
    load_spec(title="Theirs")
    again = confirm(editor, preview, note="kept")
    page = PageReader(again.content.decode())
    assert "Version 2 of this flow was saved in the meantime" in page.text
    assert (page.fields["note"], page.fields["latest"]) == ("kept", "2")
    assert FlowVersion.objects.count() == 2
    assert confirm(editor, again).status_code == 302
    assert Flow.objects.get().title == "Mine"
    Flow.objects.all().delete()
    gone = confirm(editor, preview)
    assert "The flow was deleted in the meantime." in gone.content.decode() and not Flow.objects.exists()
    assert confirm(editor, gone).status_code == 302


def test_who_may_only_change_flows_makes_no_new_one(client: Client, db: None) -> None:
    sign_in(client, "change_flow")
    preview = post(client, make_text())
    assert escape("You may not add flows: your account lacks “flows.add_flow”.") in preview.content.decode()
    assert post(client, make_text(), "_import", latest="none").status_code == 200
    assert not Flow.objects.exists()
    load_spec()
    assert confirm(client, post(client, make_text(title="Tea"))).status_code == 302
    assert Flow.objects.get().title == "Tea"
