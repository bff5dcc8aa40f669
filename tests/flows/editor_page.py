"""The flow editor without a screen: the document that its scripts hold, what they post, and what comes back."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client

from flows.models import Flow, FlowDraft, FlowVersion
from runs.models import AuditEntry
from tests.engine.builders import TEXT_SCHEMA, make_flow
from tests.flows.loading import load_flow

ADD_URL = "/admin/flows/flow/add/"
CHECK_URL = "/admin/flows/flow/check/"


def read_rows(*, with_drafts: bool = True) -> list[Any]:
    """All that an editor could change."""
    kinds = (Flow, FlowVersion, LogEntry, AuditEntry, *([FlowDraft] if with_drafts else []))
    return [list(kind._default_manager.order_by("pk").values()) for kind in kinds]


class PageReader(HTMLParser):
    """Collects the fields of a page with their values, its buttons, the JSON in it, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.buttons: dict[str, str] = {}
        self.json: dict[str, Any] = {}
        self.text = ""
        self._textarea: str | None = None
        self._script: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        name = values.get("name", "")
        match tag:
            case "input" if "disabled" not in values:
                self.fields[name] = values.get("value", "")
            case "button" if name:
                self.buttons[name] = values.get("value", "")
            case "textarea":
                self._textarea = name
                self.fields[name] = ""
            case "script" if values.get("type") == "application/json":
                self._script = values["id"]

    def handle_endtag(self, tag: str) -> None:
        if self._textarea is not None:
            # The line break that follows the tag is not part of the value.
            self.fields[self._textarea] = self.fields[self._textarea].removeprefix("\n")
        self._textarea = self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.json[self._script] = json.loads(data)
        elif self._textarea is not None:
            self.fields[self._textarea] += data
        self.text += data


class EditorPage:
    """An open page. ``document`` is what its scripts post; without scripts it is ``fields["text"]``."""

    def __init__(self, client: Client, url: str = ADD_URL) -> None:
        self.client = client
        self.url = url
        self.read(client.get(url))

    def read(self, response: HttpResponse, status: int = 200) -> None:
        """Take over the page that came."""
        assert response.status_code == status, response.content[:500]
        reader = PageReader(response.content.decode())
        self.fields, self.buttons = reader.fields, reader.buttons
        self.words = " ".join(reader.text.split())
        self.data = reader.json["editor-data"]
        self.document: dict[str, Any] = self.data["document"]
        self.note = ""

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the document."""
        return self.document["steps"]  # type: ignore[no-any-return]

    def post(self, button: str = "_save", value: str = "", **fields: Any) -> HttpResponse:
        """What the server answers to the scripts of the page."""
        posted = {"document": json.dumps(self.document), "base_version": self.data["base_version"], "note": self.note}
        return self.client.post(self.url, {**posted, button: value, **fields}, headers={"accept": "application/json"})

    def save(self, button: str = "_save", value: str = "") -> list[str]:
        """Save, follow to the page that comes, and give its messages. Fails if the flow was not saved."""
        response = self.post(button, value)
        assert response.status_code == 200, response.content
        self.url = response.json()["url"]
        page = self.client.get(self.url)
        self.read(page)
        return [str(message) for message in page.context["messages"]]

    def be_refused(self, button: str = "_save", value: str = "") -> dict[str, str]:
        """Save what can't be saved, and give the problems by their pointers. Fails if something was stored."""
        before, response = read_rows(), self.post(button, value)
        assert (response.status_code, read_rows()) == (422, before), response.content
        return {one["path"]: one["message"] for one in response.json()["problems"]}

    def check(self) -> dict[str, Any]:
        """What the scripts are answered while the user types."""
        posted = {"flow": self.data["flow"], "document": self.document, "base_version": self.data["base_version"]}
        response = self.client.post(CHECK_URL, posted, content_type="application/json")
        assert response.status_code == 200, response.content
        return dict(response.json())

    def post_form(self, button: str = "_save", **fields: str) -> HttpResponse:
        """What the server answers to a click on a button without scripts. The page must have the button."""
        # Browsers send line ends as CR LF.
        posted = {**self.fields, **fields, button: self.buttons[button]}
        return self.client.post(self.url, {name: value.replace("\n", "\r\n") for name, value in posted.items()})


def open_flow(client: Client, *steps: Any, **fields: Any) -> EditorPage:
    """The editor's page of a stored flow with these steps, by default one."""
    flow = load_flow(make_flow(*steps, **fields).to_document()).flow
    return EditorPage(client, f"/admin/flows/flow/{flow.pk}/change/")


def fill_new_flow(client: Client) -> EditorPage:
    """The page of a new flow, with one step and one audit typed in."""
    page = EditorPage(client)
    audit = {"name": "Not empty", "rule": "output.text != ''", "severity": "high", "fail_at": "high"}
    step = {"name": "Extract", "tool_name": "extract_invoice", "output_schema": TEXT_SCHEMA, "audits": [audit]}
    page.document = {"name": "invoice-extraction", "title": "Invoice extraction", "steps": [step]}
    return page
