"""`rsag compare`: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rsag.cli.options import json_option, print_json
from rsag.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rsag.records.compare import Comparison


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--allow-mixed", is_flag=True, help="Also runs of other hardware, versions or plans: what differs is said."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "html"]), default="text", show_default=True, help="html: one page."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Where the page goes.  [default: stdout]")
@json_option
def command(a: Path, b: Path, allow_mixed: bool, form: str, out: Path | None, as_json: bool) -> int:
    """Put two saved runs side by side: times, ratios, contracts that came out differently; needs no torch.

    Refuses runs that differ in hardware, versions, variables or plan, and names what differs.
    """
    from rsag.analyze.compare import compare
    from rsag.analyze.judged import read_judged
    from rsag.records.codec import document
    from rsag.report.compare import print_comparison
    from rsag.report.tables import console

    if out is not None and form != "html":
        raise UsageError("only a page goes into a file", got=f"--out {out}", do="add --format html")
    if as_json and form == "html":
        raise UsageError("one answer, in one form", got="--json and --format html", do="leave one of them out")
    compared = compare(read_judged(a), read_judged(b), allow_mixed=allow_mixed)
    if as_json:
        print_json(document(compared))
    elif form == "html":
        _write_page(compared, out)
    else:
        print_comparison(compared, console())
    return ExitCode.DONE


def _write_page(compared: Comparison, out: Path | None) -> None:
    from rsag.cli.page import put_text
    from rsag.report.page.compared import view_comparison
    from rsag.report.page.render import render_comparison
    from rsag.report.page.words import load_words

    page = render_comparison(compared, view_comparison(compared), load_words())
    put_text(page, out)
