"""``manage.py run_flow``: start a run from the terminal and, if wanted, watch it."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from flows.engine.errors import InputError
from flows.engine.json_values import parse_object
from flows.models import Flow
from runs.checks import TAG
from runs.models import Attempt, Run, RunStatus
from runs.run_options import PRIORITIES, parse_options
from runs.submission import NotRunnableError, submit_run

LOOK = 0.3
"""Seconds between looks at the run."""
WORKER_PATIENCE = 5.0
"""Seconds after which a run that no worker took is remarked upon."""

EXIT_CODES = {RunStatus.SUCCEEDED: 0, RunStatus.FAILED: 1, RunStatus.ERRORED: 2, RunStatus.CANCELLED: 2}
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
        flow = find_flow(options["flow"])
        chosen, mistakes = parse_options({name: options[name] for name in OPTIONS})
        if mistakes:
            raise CommandError("\n".join(mistakes.values()), returncode=USAGE_EXIT)
        try:
            run = submit_run(flow=flow, input=read_input(options["input"]), **chosen)
        except InputError as error:
            problems = "\n".join(f"  {problem}" for problem in error.problems)
            raise CommandError(f"The input doesn't fit “{flow}”:\n{problems}", returncode=USAGE_EXIT) from error
        except NotRunnableError as error:
            raise CommandError(str(error), returncode=USAGE_EXIT) from error
        self.stdout.write(f"Run #{run.pk} of “{flow}”, version {run.version.number}: queued")
        if options["follow"]:
            try:
                run = self._follow(run)
                self.stdout.write(json.dumps(final_outputs(run), indent=2, ensure_ascii=False))
            except BrokenPipeError:
                # Whoever read along has seen enough; the run goes on without.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_CODES.get(RunStatus(run.status), 0))

    def _follow(self, run: Run) -> Run:
        told: set[tuple[int, str]] = set()
        waiting_since = time.monotonic()
        remarked = False
        while True:
            run = Run.objects.select_related("flow").get(pk=run.pk)
            for attempt in (
                Attempt.objects.filter(step__run=run).select_related("step").order_by("step__index", "number")
            ):
                self._tell(attempt, told)
            if run.has_ended:
                self.stdout.write(f"{run.get_status_display()}: {run.end_sentence}")
                return run
            if run.status == RunStatus.QUEUED and not remarked and time.monotonic() - waiting_since > WORKER_PATIENCE:
                remarked = True
                self.stderr.write(
                    "No worker has taken the run yet. Is one running? Start it with: manage.py run_worker"
                )
            time.sleep(LOOK)

    def _tell(self, attempt: Attempt, told: set[tuple[int, str]]) -> None:
        if (attempt.pk, attempt.outcome) in told:
            return
        told.add((attempt.pk, attempt.outcome))
        name = f"Step {attempt.step.index} “{attempt.step.name}”, attempt {attempt.number}"
        self.stdout.write(f"{name}: {attempt.outcome or 'running'}")
        for issue in attempt.issues.all() if attempt.outcome else ():
            place = f" ({issue.path})" if issue.path else ""
            self.stdout.write(f"    {issue.severity}: {escape_controls(issue.description + place)}")
        if attempt.error:
            self.stdout.write(f"    {escape_controls(attempt.error['message'])}")
        self.stdout.flush()


def escape_controls(text: str) -> str:
    """Text that a model wrote, without what a terminal would obey."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def find_flow(name: str) -> Flow:
    """The flow of that name. Raises ``CommandError`` that lists the names there are."""
    flow = Flow.objects.select_related("live_version").filter(name=name).first()
    if flow is None:
        names = ", ".join(Flow.objects.runnable().order_by("name").values_list("name", flat=True)) or "none"
        raise CommandError(f"There is no flow “{name}”. Flows that can be run: {names}.", returncode=USAGE_EXIT)
    return flow


def read_input(source: str) -> dict[str, Any]:
    """The JSON object in a file, ``-`` for stdin. Raises ``CommandError`` that says what is wrong with it."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return parse_object(text)
    except OSError as error:
        raise CommandError(f"Can't read {source}: {error.strerror}.", returncode=USAGE_EXIT) from error
    except ValueError as error:
        raise CommandError(f"{source} is not usable as input. {error}", returncode=USAGE_EXIT) from error


def final_outputs(run: Run) -> dict[str, Any]:
    """The output of each step's last attempt that has one, by the step's name."""
    attempts = Attempt.objects.filter(step__run=run, output__isnull=False).select_related("step")
    return {attempt.step.name: attempt.output for attempt in attempts.order_by("step__index", "number")}
