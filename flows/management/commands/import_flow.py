"""``manage.py import_flow``: create flows, and versions of them, from files."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FlowFileError
from flows.management.terminal import escape_controls
from flows.models import FlowVersion
from flows.portability import LoadPlan, parse_flow_file, plan_load
from flows.publishing import NOTE_LENGTH, publish_flow


class Command(BaseCommand):
    help = (
        "Create flows from files, or new versions where the definition differs. If one file has "
        "an error, none is imported, and the exit status is 1."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="Flow files (YAML or JSON); - for stdin")
        parser.add_argument("--check", action="store_true", help="Only report what would be done")
        parser.add_argument("--make-live", action="store_true", help="Let new runs use what was imported")
        parser.add_argument("--note", default="", metavar="TEXT", help="Note of the new versions")
        parser.add_argument("--user", metavar="NAME", help="Author of the new versions")

    def handle(self, *args: Any, **options: Any) -> None:
        note, make_live = options["note"], options["make_live"]
        if len(note) > NOTE_LENGTH:
            raise CommandError(f"The note has {len(note)} characters; at most {NOTE_LENGTH} are stored.")
        user = None
        if (username := options["user"]) is not None:
            user = get_user_model()._default_manager.filter(username=username).first()
            if user is None:
                raise CommandError(f"No user is called “{username}”.")
        specs = self._parse_all(options["files"])
        lines = []
        with transaction.atomic():
            # In the order of names: two imports at the same time must not deadlock.
            for spec in sorted(specs, key=lambda spec: spec.name):
                plan, version = plan_load(spec), None
                if not options["check"]:
                    version = publish_flow(spec=spec, by=user, note=note)
                    if make_live and version.flow.live_version_id != version.pk:
                        version.flow.make_live(version)
                lines.append(_describe(plan, version, make_live=make_live))
        for line in lines:
            self.stdout.write(line)

    def _parse_all(self, files: list[str]) -> list[FlowSpec]:
        specs: dict[str, tuple[FlowSpec, str]] = {}
        failed = 0
        for file in files:
            name = "stdin" if file == "-" else file
            problems: list[str] = []
            try:
                spec = parse_flow_file(_read_source(file))
            except FlowFileError as error:
                problems = [str(problem) for problem in error.problems]
            except OSError as error:
                problems = [f"The file can't be read: {error.strerror}."]
            else:
                if spec.name in specs:
                    problems = [f"The flow “{spec.name}” is also in {specs[spec.name][1]}. Leave one of them out."]
                specs.setdefault(spec.name, (spec, name))
            if problems:
                failed += 1
                self.stderr.write(self.style.ERROR(f"{name}:"))
                for problem in problems:
                    self.stderr.write(f"  {escape_controls(problem)}")
        if failed:
            count = "One file has errors" if failed == 1 else f"{failed} files have errors"
            raise CommandError(f"{count}. Nothing was imported.")
        return [spec for spec, _ in specs.values()]


def _describe(plan: LoadPlan, version: FlowVersion | None, *, make_live: bool) -> str:
    """What was done, or for a ``version`` of None what would be done."""
    is_planned = version is None
    number = plan.number if version is None else version.number
    live = plan.flow.live_version if plan.flow and plan.latest else None
    is_live = live is not None and live.number == number
    if plan.latest is None:
        words = "would be a new flow, version 1" if is_planned else "new flow, version 1, live"
    elif plan.latest.number == number:
        words = f"unchanged, version {number}"
    else:
        words = f"would get version {number}" if is_planned else f"new version {number}"
    if make_live and plan.latest and not is_live:
        words += ", which would be made live" if is_planned else ", made live"
    elif live is not None and not is_live:
        words += f"; version {live.number} is live"
    if plan.flow and plan.flow.is_archived:
        words += "; the flow is archived"
    return f"{plan.spec.name}: {words}"


def _read_source(name: str) -> bytes:
    # One byte more than is allowed shows that it is too large.
    if name == "-":
        return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    with Path(name).open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)
