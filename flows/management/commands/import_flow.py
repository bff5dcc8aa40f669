"""``manage.py import_flow``: make flows what their files say."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError, transaction

from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FileProblem, FlowFileError
from flows.models import FlowVersion
from flows.portability import NOTE_LENGTH, LoadPlan, load_flow, plan_load, read_flow_file


class Command(BaseCommand):
    help = (
        "Make flows what their files say: new flows, or new versions where the definition differs. If one file has "
        "an error, none is imported, and the exit status is 1."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="Flow files (YAML or JSON); - for stdin")
        parser.add_argument("--check", action="store_true", help="Say what would be done, and store nothing")
        parser.add_argument("--make-live", action="store_true", help="Let new runs use what was imported")
        parser.add_argument("--note", default="", metavar="TEXT", help="The note of the new versions")
        parser.add_argument("--user", metavar="NAME", help="Who is named as author of the new versions")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._import_all(options)
        except (OperationalError, ProgrammingError) as error:
            raise CommandError(f"The database can't be used: {error}. Is it migrated (manage.py migrate)?") from error

    def _import_all(self, options: dict[str, Any]) -> None:
        note: str = options["note"]
        if len(note) > NOTE_LENGTH:
            raise CommandError(f"The note has {len(note)} characters; at most {NOTE_LENGTH} are stored.")
        user = _fetch_user(options["user"])
        specs = self._read_all(options["files"])
        lines = []
        with transaction.atomic():
            # In the order of names: two imports at the same moment can't wait for one another in a circle.
            for spec in sorted(specs, key=lambda spec: spec.name):
                plan, version = plan_load(spec), None
                if not options["check"]:
                    version = load_flow(document=spec.to_document(), by=user, note=note)
                    if options["make_live"] and version.flow.live_version_id != version.pk:
                        version.flow.make_live(version)
                lines.append(_describe(plan, version, make_live=options["make_live"]))
        for line in lines:
            self.stdout.write(line)

    def _read_all(self, files: list[str]) -> list[FlowSpec]:
        specs: dict[str, FlowSpec] = {}
        sources: dict[str, str] = {}
        failed = 0
        for file in files:
            name = "stdin" if file == "-" else file
            try:
                spec = read_flow_file(_read_source(file))
            except FlowFileError as error:
                failed += 1
                self.stderr.write(self.style.ERROR(f"{name}:"))
                for problem in error.problems:
                    self.stderr.write(f"  {_escape_controls(str(problem))}")
                continue
            if spec.name in specs:
                failed += 1
                self.stderr.write(
                    f"{name}:\n  The flow “{spec.name}” is also in {sources[spec.name]}. Leave one of them out."
                )
            specs[spec.name], sources[spec.name] = spec, name
        if failed:
            count = "One file has errors" if failed == 1 else f"{failed} files have errors"
            raise CommandError(f"{count}. Nothing was imported.")
        return list(specs.values())


def _describe(plan: LoadPlan, version: FlowVersion | None, *, make_live: bool) -> str:
    """What was done: ``version`` is what the flow has now; None where nothing should be stored."""
    flow, number = plan.flow, version.number if version is not None else plan.number
    is_planned = version is None
    if plan.latest is None:
        words = "would be a new flow, version 1" if is_planned else "new flow, version 1, live"
    elif plan.latest.number == number:
        words = f"unchanged, version {number}"
    else:
        words = f"would get version {number}" if is_planned else f"new version {number}"
    live = flow.live_version if flow is not None and plan.latest is not None else None
    if make_live and (live is None or live.number != number) and plan.latest is not None:
        words += ", which would be made live" if is_planned else ", made live"
    elif live is not None and live.number != number:
        words += f"; version {live.number} is live"
    if flow is not None and flow.is_archived:
        words += "; the flow is archived"
    return f"{plan.spec.name}: {words}"


def _read_source(name: str) -> bytes:
    # One more than is allowed: what is larger is not read to its end.
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FlowFileError([FileProblem("", f"The file can't be read: {error.strerror}.")]) from error


def _fetch_user(name: str | None) -> Any:
    if name is None:
        return None
    users = get_user_model()
    user = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
    if user is None:
        raise CommandError(f"There is no user “{name}”.")
    return user


def _escape_controls(text: str) -> str:
    """Text of a file, without what a terminal would obey."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
