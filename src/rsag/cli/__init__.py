"""The command line: one file per command, imported only when it is asked for.

Standard output carries the answer and, with `--json`, one JSON document and nothing else; progress and errors go to
standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback

import click

from rsag import __version__
from rsag.errors import ExitCode, RsagError

COMMANDS: dict[str, str] = {
    "run": "Plan, launch, judge and report in one go: the main job.",
    "prove": "Prove compositions on symbols, or find the counterexample; needs no torch.",
    "model": "Predict what compositions and training steps cost, at any scale.",
    "ring": "Print a ring schedule, step by step.",
    "emit": "Print a composition as plain torch code.",
    "judge": "Judge a saved run directory again, without torch.",
    "report": "Make the page of a saved run, a comment for a pull request, or JUnit XML.",
    "show": "Print the verdict of a saved run directory.",
    "compare": "Put two saved runs side by side.",
    "merge": "Say what holds across several launches of one plan.",
    "kernels": "Say what really ran, from traces, dumps and logs that are there already.",
    "env": "Say what this machine's backends can do, probed in child processes.",
}
"""Name and help line of each command, in the order of `rsag --help`; the command is `rsag.cli.NAME:command`."""


INTERRUPTED = 130
"""The exit code of a shell's child that Ctrl-C ended."""


class _Commands(click.Group):
    """Loads a command's file only when it runs: `rsag --help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"rsag.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rsag")
def group() -> None:
    """Settle, on your own machines, whether AllReduce may become ReduceScatter + AllGather, and what that costs.

    \b
    Exit codes: 0 done; 1 refuted, or a gate that was asked for; 2 wrong use;
    3 inconclusive or invalid where an answer was required; 4 the run failed, or rsag itself.
    """


def main(arguments: list[str] | None = None) -> None:
    """The entry point of `rsag`: the only place that prints errors and maps them to exit codes."""
    try:
        sys.exit(_run(sys.argv[1:] if arguments is None else arguments))
    except RsagError as error:
        click.echo(f"rsag: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.WRONG_USE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("rsag: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has seen enough; what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.DONE)
    except Exception as error:  # noqa: BLE001 - the outermost edge: Python's own 1 would mean refuted
        traceback.print_exc()
        click.echo(f"rsag: internal error: {type(error).__name__}: {error}; please report it with the above", err=True)
        sys.exit(ExitCode.RUN_FAILED)


def _run(arguments: list[str]) -> int:
    """Not click's own `main`: that takes a closed pipe for a failure, and 1 means refuted here."""
    try:
        with group.make_context("rsag", list(arguments)) as context:
            code = group.invoke(context)
            sys.stdout.flush()
    except click.exceptions.Exit as done:  # --help and --version
        return int(done.exit_code)
    return code if isinstance(code, int) else ExitCode.DONE
