"""`rsag show`: the verdict of a saved run directory."""

from __future__ import annotations

from pathlib import Path

import click

from rsag.cli.options import json_option, print_json
from rsag.cli.run import exit_code


@click.command("show")
@click.argument("run", type=click.Path(path_type=Path))
@json_option
def command(run: Path, as_json: bool) -> int:
    """Print the verdict of a saved run directory."""
    from rsag.records.codec import document, load_document
    from rsag.records.rundir import VERDICT, require_run_directory
    from rsag.records.verdict import Verdict
    from rsag.report.tables import console
    from rsag.report.verdict import print_verdict

    verdict = load_document(Verdict, require_run_directory(run) / VERDICT)
    if as_json:
        print_json(document(verdict))
    else:
        print_verdict(verdict, console())
    return exit_code(verdict.outcome.value)
