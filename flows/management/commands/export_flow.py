"""``manage.py export_flow``: write flows as files."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from flows.engine.errors import SpecError
from flows.flow_file import SCHEMA_PATH, write_flow
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
        parser.add_argument("--output", default="-", metavar="FILE", help="Where to; - for the terminal (default)")
        parser.add_argument("--all", metavar="DIRECTORY", help="All flows that are not archived, a file for each")

    def handle(self, *args: Any, **options: Any) -> None:
        name, folder = options["name"], options["all"]
        if (name is None) == (folder is None):
            raise CommandError("Name either a flow, or a directory with --all.")
        if folder is not None:
            if options["version"] is not None or options["output"] != "-":
                raise CommandError("--all takes no --version and no --output.")
            self._write_all(Path(folder), live=options["live"])
            return
        version = _find_version(name, options["version"], live=options["live"])
        text = _render_version(version)
        announce_export([version])
        if options["output"] == "-":
            self._print(text)
        else:
            _store_text(Path(options["output"]), text)
            self.stderr.write(f"{options['output']}: {name}, version {version.number}")

    def _write_all(self, folder: Path, *, live: bool) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"Can't make the directory {folder}: {error.strerror}.") from error
        flows = Flow.objects.filter(is_archived=False).order_by("name").select_related("live_version")
        # Written once all can be: half an export would look like a whole one.
        texts: dict[FlowVersion, str] = {}
        for flow in flows:
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
            # Where the files say that it is, so that editors complete and check them.
            _store_text(folder / SCHEMA_PATH.name, SCHEMA_PATH.read_text(encoding="utf-8"))
            self.stdout.write(f"{folder / SCHEMA_PATH.name}: JSON Schema of the files")

    def _print(self, text: str) -> None:
        try:
            self.stdout.write(text, ending="")
            self.stdout.flush()
        except BrokenPipeError:
            # Whoever read along has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _find_version(name: str, number: int | None, *, live: bool) -> FlowVersion:
    flow = Flow.objects.select_related("live_version").filter(name=name).first()
    if flow is None:
        names = ", ".join(Flow.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise CommandError(f"There is no flow “{name}”. Flows: {names}.")
    if live and flow.live_version is None:
        raise CommandError(f"No version of “{name}” is live.")
    numbers = flow.versions.values_list("number", flat=True)
    if number is not None and number not in numbers:
        raise CommandError(f"“{name}” has no version {number}. Versions: {', '.join(map(str, numbers)) or 'none'}.")
    chosen = flow.versions.all() if number is None else flow.versions.filter(number=number)
    version = flow.live_version if live else chosen.first()
    if version is None:
        raise CommandError(f"“{name}” has no version yet: nothing was published.")
    return version


def _render_version(version: FlowVersion) -> str:
    try:
        return write_flow(version.flow_spec)
    except SpecError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise CommandError(
            f"Version {version.number} of “{version.flow.name}” can't be read by this release:\n{problems}"
        ) from error


def _store_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises ``CommandError`` if that can't be done."""
    if path.is_dir():
        raise CommandError(f"Can't write {path}: it is a directory. Name a file in it.")
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name[:40]}.", delete=False
        ) as file:
            file.write(text)
        try:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_read_umask()
            Path(file.name).chmod(mode)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
    except OSError as error:
        raise CommandError(f"Can't write {path}: {error.strerror}.") from error


def _read_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
