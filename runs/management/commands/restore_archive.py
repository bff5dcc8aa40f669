"""``manage.py restore_archive``: put runs of a file back."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from runs.archive.building import Trial
from runs.archive.doomed import Doomed
from runs.archive.reading import BadArchiveError, Record, check_archive
from runs.archive.restoring import Restored, restore_archive
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

PROGRESS = 10_000
"""Runs between two lines that say how far it has come."""
_MOST_NAMED = 20


class Command(BaseCommand):
    help = (
        "Put the runs of a file back, with their numbers. The file is checked as a whole first. Runs that are there "
        "stay as they are, but those that lost outputs or attempts get them back; one that can’t be stored keeps no "
        "other from it, and is named at the end. Interrupted, it goes on when called again. "
        "If a policy would take them away again at once, nothing is restored without --force. "
        "Exit status: 0 all runs of the file are there, 1 not all of them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="what archive_history or purge_history wrote")
        parser.add_argument(
            "--check", action="store_true", help="only say whether the file is whole, and what it holds"
        )
        parser.add_argument(
            "--force", action="store_true", help="restore also what a policy takes away again within the hour"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        doomed, trial = Doomed(now=timezone.now()), Trial()

        def look(record: Record) -> None:
            doomed.look(record)
            if options["check"]:
                trial.look(record)

        try:
            contents = check_archive(path, look=look)
            if options["check"]:
                self.stdout.write(f"{path} is whole: {contents.runs:,} runs with {contents.attempts:,} attempts.")
            if warning := doomed.explain():
                self.stderr.write(warning)
            if options["check"]:
                if trial.misfits:
                    raise CommandError(f"{len(trial.misfits):,} of them can’t be restored here. {trial.misfits}")
                return
            if warning and not options["force"]:
                raise CommandError("Nothing was restored. Let their flows keep runs for longer first, or give --force.")
            restored = restore_archive(
                path, contents=contents, begin=lambda: _leave_entry(path, {"begun": True}), report=self._report
            )
        except BadArchiveError as error:
            raise CommandError(str(error)) from error
        finally:
            self._tell(path)
        self.stdout.write(
            f"{restored.runs:,} runs with {restored.attempts:,} attempts are back; statistics held "
            f"{restored.runs - restored.counted:,} of them still and count {restored.counted:,} anew. "
            f"{restored.present:,} were there already."
        )
        if problems := list(_list_problems(restored)):
            raise CommandError(" ".join(problems))

    def _tell(self, path: Path) -> None:
        """Leave an entry with what was restored, also if the rest could not be."""
        restored = self._restored
        if restored is not None and restored.runs:
            details = {
                "runs": restored.runs,
                "attempts": restored.attempts,
                "were_there": restored.present,
                "left_out": len(restored.taken) + len(restored.misfits),
            }
            _leave_entry(path, details)

    def _report(self, restored: Restored) -> None:
        self._restored = restored
        done = restored.runs + restored.present
        if done // PROGRESS != self._told:
            self._told = done // PROGRESS
            self.stdout.write(f"{done:,} runs so far.")

    _told = 0
    _restored: Restored | None = None


def _leave_entry(path: Path, details: Mapping[str, Any]) -> None:
    leave_trail(action=TrailAction.HISTORY_RESTORED, label=path.name, details=details)


def _list_problems(restored: Restored) -> Iterator[str]:
    if restored.taken:
        named = ", ".join(map(str, restored.taken[:_MOST_NAMED])) + (", …" if len(restored.taken) > _MOST_NAMED else "")
        yield f"{len(restored.taken):,} runs were left out, since other runs have their numbers here: {named}"
    if restored.misfits:
        yield f"{len(restored.misfits):,} runs were left out, since they can’t be stored. {restored.misfits}"
