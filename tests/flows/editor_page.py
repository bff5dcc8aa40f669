"""The flow editor as a browser without a screen sees it: its fields, its errors, and what a click on Save sends."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from django.http import HttpResponse
from django.test import Client

from flows.portability import load_flow
from tests.engine.builders import TEXT_SCHEMA, make_flow

ADD_URL = "/admin/flows/flow/add/"


class PageReader(HTMLParser):
    """Collects the fields of a page with their values, the errors beside them, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.buttons: dict[str, str] = {}
        self.errors: dict[str, list[str]] = {}
        self.text = ""
        self._textarea: str | None = None
        self._select: str | None = None
        self._errors_of: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        name = values.get("name", "")
        match tag:
            case "input" if values.get("type") == "checkbox":
                if "checked" in values:
                    self.fields[name] = "on"
            case "input" if values.get("type") != "submit":
                self.fields[name] = values.get("value", "")
            case "button" if name:
                self.buttons[name] = values.get("value", "")
            case "textarea":
                self._textarea = name
                self.fields[name] = ""
            case "select":
                self._select = name
            case "option" if self._select and "selected" in values:
                self.fields[self._select] = values.get("value", "")
            case "ul" if "errorlist" in values.get("class", "").split():
                self._errors_of = values.get("id", "").removeprefix("id_").removesuffix("_error")
            case "li" if self._errors_of is not None:
                self.errors.setdefault(self._errors_of, []).append("")

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "textarea" if self._textarea is not None:
                # The line break that follows the tag is not part of the value.
                self.fields[self._textarea] = self.fields[self._textarea].removeprefix("\n").removeprefix("\r\n")
                self._textarea = None
            case "select":
                self._select = None
            case "ul":
                self._errors_of = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._textarea is not None:
            self.fields[self._textarea] += data
        elif self._errors_of is not None and self.errors.get(self._errors_of):
            self.errors[self._errors_of][-1] += data


class EditorPage:
    """An open editor page. ``fields`` are what will be posted; steps and audits are added as the page's script does."""

    def __init__(self, client: Client, url: str = ADD_URL) -> None:
        self._client = client
        self.url = url
        self._read(client.get(url))

    def _read(self, response: HttpResponse) -> None:
        assert response.status_code == 200, response
        reader = PageReader(response.content.decode())
        self._blank = {
            name: value for name, value in reader.fields.items() if "__prefix__" in name or "-empty-" in name
        }
        self.fields = {
            name: value
            for name, value in reader.fields.items()
            if name not in {"", "csrfmiddlewaretoken", *self._blank}
        }
        self.buttons = reader.buttons
        self.errors = reader.errors
        self.text = reader.text
        self.words = " ".join(reader.text.split())

    def add_step(self, **values: Any) -> str:
        """Add a step with the page's defaults and these values; gives the prefix of its fields."""
        values = {"tool_name": f"new_tool_{self.fields['steps-TOTAL_FORMS']}", **values}
        return self._add("steps", "steps-__prefix__-", "steps-empty-", values)

    def add_audit(self, step: str, **values: Any) -> str:
        """Add an audit to the step with this prefix; gives the prefix of its fields."""
        return self._add(f"{step}audits", "steps-empty-audits-__prefix__-", "", {"rule": "true", **values})

    def _add(self, formset: str, blank: str, nested: str, values: dict[str, Any]) -> str:
        number = int(self.fields[f"{formset}-TOTAL_FORMS"])
        prefix = f"{formset}-{number}-"
        for name, value in self._blank.items():
            if name.startswith(blank):
                self.fields[prefix + name.removeprefix(blank)] = value
            elif nested and name.startswith(nested) and "__prefix__" not in name:
                self.fields[prefix + name.removeprefix(nested)] = value
        self.fields[f"{formset}-TOTAL_FORMS"] = str(number + 1)
        self.fields[f"{prefix}position"] = str(number)
        self.fill(prefix, **values)
        return prefix

    def fill(self, prefix: str = "", **values: Any) -> None:
        """Type values; objects are typed as JSON. A field that the page lacks is an error of the test."""
        for name, value in values.items():
            field = prefix + name
            known = field in self.fields or name in {"DELETE", "stop_on_failure"}
            assert known, f"The page has no field “{field}”."
            self.fields[field] = json.dumps(value) if isinstance(value, dict) else str(value)

    def uncheck(self, field: str) -> None:
        """Take a tick away."""
        self.fields.pop(field, None)

    def post(self, button: str = "_save") -> HttpResponse:
        """What the server answers to a click on a button. A button that the page lacks is an error of the test."""
        assert button in self.buttons, f"The page has no button “{button}”."
        return self._client.post(self.url, {**self.fields, button: self.buttons[button]})

    def save(self, button: str = "_save") -> list[str]:
        """Save, follow to the page that comes, and give its messages. Fails if the flow was not saved."""
        response = self.post(button)
        assert response.status_code == 302, PageReader(response.content.decode()).errors
        self.url = response["Location"]
        page = self._client.get(self.url)
        self._read(page)
        return [str(message) for message in page.context["messages"]]

    def save_in_vain(self, button: str = "_save") -> dict[str, list[str]]:
        """Save what can't be saved, and give the errors by field. Fails if it was saved."""
        self._read(self.post(button))
        return self.errors


def open_flow(client: Client, *steps: Any, **fields: Any) -> EditorPage:
    """The editor's page of a stored flow with these steps, by default one."""
    flow = load_flow(document=make_flow(*steps, **fields).to_document()).flow
    return EditorPage(client, f"/admin/flows/flow/{flow.pk}/change/")


def fill_new_flow(client: Client) -> EditorPage:
    """The page of a new flow, with one step and one audit typed in."""
    page = EditorPage(client)
    page.fill(title="Invoice extraction", name="invoice-extraction")
    step = page.add_step(name="Extract", tool_name="extract_invoice", output_schema=TEXT_SCHEMA)
    page.add_audit(step, name="Not empty", rule="output.text != ''", severity="high", fail_at="high")
    return page
