"""The panel of the editor that tries a step, as tests work it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client

from flows.engine.spec import FlowSpec
from tests.flows.editor_page import EditorPage, open_flow
from tests.runs.pages.history_builders import make_stored_run

URL = "/admin/flows/flow/try/"


class Panel:
    """The panel of one step of an open editor page. ``text`` is what it says, without tags, in one line."""

    def __init__(self, client: Client, page: EditorPage, step: str = "steps-0") -> None:
        self.client = client
        self.page = page
        self.step = step
        self.flow = re.sub(r"[^0-9]", "", page.url)
        self.choices: dict[str, str] = {}
        self.html = self.text = ""
        self.status = 0

    def ask(self, action: str = "open", **choices: Any) -> str:
        """Choose something, and press a button; gives what the panel says then."""
        self.choices.update({f"try_{name}": str(value) for name, value in choices.items()})
        own = {"flow": self.flow, "try_step": self.step, "try_action": action}
        response = self.client.post(URL, {**self.page.fields, **own, **self.choices})
        self.status = response.status_code
        self.html = response.content.decode()
        self.text = " ".join(unescape(re.sub(r"<[^>]+>", " ", self.html)).split())
        return self.text


def open_panel(client: Client, spec: FlowSpec | None = None, step: str = "steps-0") -> Panel:
    """The panel of a step of a stored flow without runs."""
    steps = spec.steps if spec else ()
    return Panel(client, open_flow(client, *steps), step)


def open_with_run(client: Client, spec: FlowSpec, *attempts: Any, step: str = "steps-0", **fields: Any) -> Panel:
    """The panel of a step of a flow that has run."""
    page = open_flow(client, *spec.steps)
    make_stored_run(*attempts, spec=spec, **fields)
    return Panel(client, page, step)
