"""The command ``toolflow``."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from flows import __version__
from runs.client import batch, export, flows, repeating, runs, versions
from runs.client.errors import REFUSED, SUCCEEDED, ClientError
from runs.client.printing import print_error, print_line
from runs.client.server import DEFAULT_URL
from runs.client.standard_streams import prepare_streams, silence, writing_results

app = typer.Typer(
    help="Run flows and look into their history, over the REST API of a ToolFlow installation. TOOLFLOW_TOKEN is the "
    "token to sign in with. Exit status: 0 done, or the run succeeded; 1 the run failed, or some of several things "
    "could not be done; 2 the run errored or was cancelled; 3 it could not be done: wrong use, the server refused or "
    "could not be reached, or results could not be written.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(runs.start_run)
app.command("batch")(batch.run_batch)
app.command("runs")(runs.list_runs)
app.command("show")(runs.show_run)
app.command("cancel")(repeating.cancel_runs)
app.command("rerun")(repeating.run_again)
app.command("export")(export.export_runs)
app.add_typer(flows.commands, name="flows")
app.add_typer(versions.commands, name="versions")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print_line(f"toolflow {__version__}")
        raise typer.Exit


@app.callback()
def read_options(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="TOOLFLOW_URL", help="Where ToolFlow is.")] = DEFAULT_URL,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep what all commands need."""
    context.obj = url


def _explain_misuse(error: typer.TyperException) -> None:
    """What is wrong, below how the command is used; whoever typed no command gets the help, which is the message."""
    context: typer.Context | None = getattr(error, "ctx", None)
    message = error.format_message()
    if context is not None and not message.startswith("Usage: "):
        print_line(context.get_usage(), is_error=True)
        print_line(f"“{context.command_path} --help” says more.\n", is_error=True)
        message = f"toolflow: {message}"
    print_line(message, is_error=True)


def _describe_fault(error: Exception) -> str:
    """What nobody expected, in one sentence, with the place for whoever looks for the reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"It can’t be done: {error.strerror}."
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return f"It can’t be done, by a fault of the server’s answer or of toolflow itself ({said[:200]}; {where})."


def main() -> None:
    """Do what the command line says, and end the process with its exit status."""
    prepare_streams()
    status = SUCCEEDED
    try:
        status = app(prog_name="toolflow", standalone_mode=False)
        with writing_results():
            pass
    except typer.TyperException as error:
        # The framework’s own exit status for wrong use is what a run that errored has.
        _explain_misuse(error)
        status = REFUSED
    except ClientError as error:
        print_error(error)
        status = REFUSED
    except (BrokenPipeError, SystemExit):
        # Whoever read along has seen enough. The framework ends commands only for that by itself, with the status of a
        # run that failed.
        silence(sys.stdout)
    except Exception as error:  # noqa: BLE001  # Python’s own exit status for it is that of a run that failed
        silence(sys.stdout)
        print_line(f"toolflow: {_describe_fault(error)}", is_error=True)
        status = REFUSED
    sys.exit(status)
