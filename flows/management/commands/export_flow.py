"""``manage.py export_flow``: write flows as files."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from flows.engine.errors import SpecError
from flows.flow_file import SCHEMA_PATH, render_flow
from flows.management.terminal import fetch_flow
from flows.models import Flow, FlowVersion
from flows.portability import announce_export


class Command(BaseCommand):
    help = "Write a flow as a YAML file, as import_flow and “Upload a flow file” read it."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """The parser; here ``--version`` means the flow's, not Django's."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", metavar="NAME", help="Name of the flow, as in its URL")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--version", type=int, metavar="N", help="This version (default: the latest one)")
        which.add_argument("--live", action="store_true", help="The live version")
        parser.add_argument("--output", default="-", metavar="FILE", help="Output file; - for the terminal (default)")
        parser.add_argument("--all", metavar="DIRECTORY", help="All flows that are not archived, a file for each")

    def handle(self, *args: Any, **options: Any) -> None:
        name, folder, output = options["name"], options["all"], options["output"]
        if (name is None) == (folder is None):
            raise CommandError("Name either a flow, or a directory with --all.")
        if folder is not None:
            if options["version"] is not None or output != "-":
                raise CommandError("--all can't be combined with --version or --output.")
            self._write_all(Path(folder), live=options["live"])
            return
        version = _fetch_version(name, options["version"], live=options["live"])
        text = _render_version(version)
        announce_export([version])
        if output == "-":
            self.stdout.write(text, ending="")
        else:
            _store_text(Path(output), text)
            self.stderr.write(f"{output}: {name}, version {version.number}")

    def _write_all(self, folder: Path, *, live: bool) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"Can't create the directory {folder}: {error.strerror}.") from error
        # Written once all are rendered: half an export would look like a whole one.
        texts: dict[FlowVersion, str] = {}
        for flow in Flow.objects.filter(is_archived=False).order_by("name").select_related("live_version"):
            version = flow.live_version if live else flow.versions.first()
            if version is None:
                self.stderr.write(f"{flow.name}: left out, no version {'is live' if live else 'was published yet'}")
                continue
            version.flow = flow
            texts[version] = _render_version(version)
        announce_export(list(texts))
        for version, text in texts.items():
            path = folder / f"{version.flow.name}.yaml"
            _store_text(path, text)
            self.stdout.write(f"{path}: version {version.number}")
        if SCHEMA_PATH.exists():
            # Where the files refer to it, so that editors complete and check them.
            _store_text(folder / SCHEMA_PATH.name, SCHEMA_PATH.read_text(encoding="utf-8"))
            self.stdout.write(f"{folder / SCHEMA_PATH.name}: JSON Schema of the files")


def _fetch_version(name: str, number: int | None, *, live: bool) -> FlowVersion:
    flow = fetch_flow(name)
    if live:
        if flow.live_version is None:
            raise CommandError(f"No version of “{name}” is live.")
        return flow.live_version
    versions = {version.number: version for version in flow.versions.defer("spec")}
    if not versions:
        raise CommandError(f"“{name}” has no version yet: nothing was published.")
    if number is not None and number not in versions:
        raise CommandError(f"“{name}” has no version {number}. Versions: {', '.join(map(str, versions))}.")
    return versions[max(versions) if number is None else number]


def _render_version(version: FlowVersion) -> str:
    try:
        return render_flow(version.flow_spec)
    except SpecError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise CommandError(
            f"Version {version.number} of “{version.flow.name}” can't be read by this release:\n{problems}"
        ) from error


def _store_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise CommandError(f"Can't write {path}: {error.strerror}.") from error
