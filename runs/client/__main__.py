"""The command ``toolflow`` (also ``python -m runs.client``): its verbs, and its exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from flows import __version__
from runs.client import backtests, batch, bulk, flows, runs
from runs.client.server import DEFAULT_URL, REFUSED, SUCCEEDED, ClientError
from runs.client.terminal import prepare_streams, print_error, print_line, silence, write

app = typer.Typer(
    help="Run flows and read their history over the REST API of a ToolFlow installation. TOOLFLOW_TOKEN is the API "
    "token. Exit status: 0 done, or the run succeeded; 1 the run failed, or part of the work could not be done; 2 the "
    "run errored or was cancelled; 3 wrong use, the server refused or can’t be reached, or the results can’t be "
    "written.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(runs.start_run)
app.command("batch")(batch.run_batch)
app.command("runs")(runs.list_runs)
app.command("show")(runs.show_run)
app.command("cancel")(bulk.cancel_runs)
app.command("rerun")(bulk.rerun_runs)
app.command("export")(batch.export_runs)
app.command("backtest")(backtests.backtest_flow)
app.add_typer(flows.commands, name="flows")
app.add_typer(flows.version_commands, name="versions")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        write(f"toolflow {__version__}\n")
        raise typer.Exit


@app.callback()
def read_options(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="TOOLFLOW_URL", help="The address of ToolFlow.")] = DEFAULT_URL,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep the options of all commands."""
    context.obj = url


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or ``arguments``, and exit with its status."""
    prepare_streams()
    status = REFUSED
    try:
        status = app(arguments, prog_name="toolflow", standalone_mode=False) or SUCCEEDED
        sys.stdout.flush()
    except typer.TyperException as error:
        print_line(_describe_misuse(error), is_error=True)
    except ClientError as error:
        print_error(error.message, error.details)
    except (BrokenPipeError, SystemExit):
        # The reader of an export has seen enough. Typer exits with 1 then, the status of a run that failed.
        silence(sys.stdout)
        status = SUCCEEDED
    except OSError as error:
        silence(sys.stdout)
        status = REFUSED
        print_error(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}.")
    except Exception as error:  # noqa: BLE001  # Python's own exit status for it is that of a run that failed
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        print_error(f"Unexpected response from the server, or a bug ({detail[:200]}).")
    sys.exit(status)


def _describe_misuse(error: typer.TyperException) -> str:
    """How the command is used, and what is wrong; without any command the message is the help."""
    context: typer.Context | None = getattr(error, "ctx", None)
    message = error.format_message()
    if context is None or message.startswith("Usage: "):
        return message
    return f"{context.get_usage()}\nTry “{context.command_path} --help”.\n\ntoolflow: {message}"


if __name__ == "__main__":
    main()
