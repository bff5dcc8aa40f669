"""``manage.py run_flow``: start a run from the terminal and, if wanted, follow it."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from flows.engine.errors import InputError
from flows.engine.json_values import parse_object
from flows.management.terminal import escape_controls, fetch_flow
from runs.checks import TAG
from runs.models import Attempt, Run, RunStatus
from runs.run_options import PRIORITIES, parse_options
from runs.submission import NotRunnableError, submit_run

POLL_INTERVAL = 0.3
"""Seconds."""
WORKER_TIMEOUT = 5.0
"""Seconds after which a run that no worker has claimed gets a warning."""

EXIT_CODES: dict[str, int] = {RunStatus.SUCCEEDED: 0, RunStatus.FAILED: 1, RunStatus.ERRORED: 2, RunStatus.CANCELLED: 2}
USAGE_EXIT = 3
OPTIONS = ("priority", "token_budget", "cost_budget", "time_limit")


class Command(BaseCommand):
    help = (
        "Run the live version of a flow. Exit status with --follow: 0 succeeded, 1 failed, 2 errored or cancelled, "
        "3 wrong use."
    )

    # Django's own checks load what serves pages; `manage.py check` runs them.
    requires_system_checks = [TAG]

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("flow", metavar="SLUG", help="Name of the flow, as in its URL")
        parser.add_argument("--input", required=True, metavar="FILE", help="JSON file with the input; - for stdin")
        parser.add_argument("--follow", action="store_true", help="Show progress until the run ends")
        priorities = ", ".join(PRIORITIES)
        parser.add_argument("--priority", default="", metavar="NAME", help=f"{priorities} (default: normal)")
        parser.add_argument("--token-budget", default="", metavar="TOKENS", help="Tokens that the run may use")
        parser.add_argument("--cost-budget", default="", metavar="USD", help="What the run may cost")
        parser.add_argument("--time-limit", default="", metavar="SECONDS", help="How long the run may take")

    def run_from_argv(self, argv: list[str]) -> None:
        """Wrong arguments end this command with exit status 3: 2 is that of a run that errored."""
        parser = self.create_parser(argv[0], argv[1])
        try:
            # Not called from the command line yet, the parser raises in place of ending the process with 2.
            parser.parse_args(argv[2:])
        except CommandError as error:
            parser.print_usage(sys.stderr)
            sys.stderr.write(f"{error}\n")
            sys.exit(USAGE_EXIT)
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        flow = fetch_flow(options["flow"], returncode=USAGE_EXIT)
        chosen, mistakes = parse_options({name: options[name] for name in OPTIONS})
        if mistakes:
            raise CommandError("\n".join(mistakes.values()), returncode=USAGE_EXIT)
        try:
            run = submit_run(flow=flow, input=_parse_input(options["input"]), **chosen)
        except InputError as error:
            problems = "\n".join(f"  {problem}" for problem in error.problems)
            raise CommandError(f"The input doesn't fit “{flow}”:\n{problems}", returncode=USAGE_EXIT) from error
        except NotRunnableError as error:
            raise CommandError(str(error), returncode=USAGE_EXIT) from error
        self.stdout.write(f"Run #{run.pk} of “{flow}”, version {run.version.number}: queued")
        if options["follow"]:
            run = self._follow(run)
            self.stdout.write(json.dumps(fetch_outputs(run), indent=2, ensure_ascii=False))
            self.stdout.flush()
            sys.exit(EXIT_CODES[run.status])

    def _follow(self, run: Run) -> Run:
        shown: set[tuple[int, str]] = set()
        warn_at = time.monotonic() + WORKER_TIMEOUT
        while True:
            run = Run.objects.select_related("flow").get(pk=run.pk)
            attempts = Attempt.objects.filter(step__run=run).select_related("step").order_by("step__index", "number")
            for attempt in attempts:
                if (attempt.pk, attempt.outcome) not in shown:
                    shown.add((attempt.pk, attempt.outcome))
                    self._show(attempt)
            if run.has_ended:
                self.stdout.write(f"{run.get_status_display()}: {run.end_sentence}")
                return run
            if run.status == RunStatus.QUEUED and not shown and time.monotonic() > warn_at:
                warn_at = float("inf")
                self.stderr.write("No worker has claimed the run yet. Is one running? Start it: manage.py run_worker")
            time.sleep(POLL_INTERVAL)

    def _show(self, attempt: Attempt) -> None:
        name = f"Step {attempt.step.index} “{attempt.step.name}”, attempt {attempt.number}"
        self.stdout.write(f"{name}: {attempt.outcome or 'running'}")
        for issue in attempt.issues.all() if attempt.outcome else ():
            place = f" ({issue.path})" if issue.path else ""
            self.stdout.write(f"    {issue.severity}: {escape_controls(issue.description + place)}")
        if attempt.error:
            self.stdout.write(f"    {escape_controls(attempt.error['message'])}")
        self.stdout.flush()


def _parse_input(source: str) -> dict[str, Any]:
    """The JSON object in a file, ``-`` for stdin. Raises ``CommandError``."""
    try:
        return parse_object(sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"Can't read {source}: {error.strerror}.", returncode=USAGE_EXIT) from error
    except ValueError as error:
        raise CommandError(f"{source} is not usable as input. {error}", returncode=USAGE_EXIT) from error


def fetch_outputs(run: Run) -> dict[str, Any]:
    """The accepted output of each step, or else its last one, by the step's name."""
    attempts = Attempt.objects.filter(step__run=run, output__isnull=False).select_related("step")
    return {attempt.step.name: attempt.output for attempt in attempts.order_by("step__index", "is_accepted", "number")}
