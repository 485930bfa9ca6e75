"""`rsag compare`: two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from rsag.cli.options import json_option, print_json
from rsag.errors import ExitCode


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--allow-mixed", is_flag=True, help="Also runs of other hardware, versions or plans: what differs is said."
)
@json_option
def command(a: Path, b: Path, allow_mixed: bool, as_json: bool) -> int:
    """Put two saved runs side by side: times, ratios, contracts that came out differently; needs no torch.

    Refuses runs that differ in hardware, versions, variables or plan, and names what differs.
    """
    from rsag.analyze.compare import compare
    from rsag.analyze.judged import read_judged
    from rsag.records.codec import document
    from rsag.report.compare import print_comparison
    from rsag.report.tables import console

    compared = compare(read_judged(a), read_judged(b), allow_mixed=allow_mixed)
    if as_json:
        print_json(document(compared))
    else:
        print_comparison(compared, console())
    return ExitCode.DONE
