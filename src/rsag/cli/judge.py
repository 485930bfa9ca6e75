"""`rsag judge`: records to verdict, again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rsag.cli.options import json_option, print_json
from rsag.cli.page import try_report
from rsag.cli.run import exit_code


@click.command("judge")
@click.argument("run", type=click.Path(path_type=Path))
@json_option
def command(run: Path, as_json: bool) -> int:
    """Judge a saved run directory again, without torch, and write its verdict.json and report.html.

    Also what comes after torchrun: its ranks leave records and no verdict.
    """
    from rsag.analyze.verdict import judge
    from rsag.records.codec import document, dump_document
    from rsag.records.rundir import VERDICT
    from rsag.report.tables import console
    from rsag.report.verdict import print_verdict

    verdict = judge(run)
    if as_json:
        print_json(document(verdict))
    else:
        print_verdict(verdict, console())
    sys.stdout.flush()
    dump_document(verdict, run / VERDICT)  # last: where it cannot be written, the verdict was seen all the same
    try_report(run)
    return exit_code(verdict.outcome.value)
