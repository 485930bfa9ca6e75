"""`rsag report`: a saved run directory as a page, as a comment, or as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rsag.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rsag.report.junit import Breach

PATH = click.Path(path_type=Path)


@click.command("report")
@click.argument("run", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "markdown", "junit"]),
    default="html",
    show_default=True,
    help="A page; a comment for a pull request; JUnit XML for CI.",
)
@click.option("--out", type=PATH, metavar="FILE", help="Default: report.html in RUN; the others on standard output.")
@click.option("--lang", metavar="TAG", help="Language of the page's own words.  [default: en]")
def command(run: Path, form: str, out: Path | None, lang: str | None) -> int:
    """Show a saved run: one page that opens from disk, a comment for a pull request, or JUnit XML; needs no torch.

    The page is made of whatever the directory holds, and says what is missing. The others need a verdict.json: `rsag
    judge` makes one.
    """
    from rsag.cli.page import put_text, write_report
    from rsag.records.rundir import require_run_directory

    require_run_directory(run)
    if form == "html":
        click.echo(f"rsag: report {write_report(run, out=out, lang=lang)}", err=True)
        return ExitCode.DONE
    if lang is not None:
        raise UsageError("only the page has languages", got=f"--lang {lang}", do="leave --lang out")
    text = _markdown(run) if form == "markdown" else junit_of(run, ())
    put_text(text, out)
    return ExitCode.DONE


def _markdown(run: Path) -> str:
    from rsag.records.codec import load_document
    from rsag.records.rundir import VERDICT
    from rsag.records.verdict import Verdict
    from rsag.report.markdown import markdown

    return markdown(load_document(Verdict, run / VERDICT), name=run.resolve().name)


def junit_of(run: Path, breaches: Sequence[Breach]) -> str:
    """The XML of a run directory that has a verdict: its rows, its proofs, and the conditions that it does not keep."""
    from rsag.records.codec import load_document
    from rsag.records.proof import Proofs
    from rsag.records.rundir import PROOFS, VERDICT
    from rsag.records.verdict import Verdict
    from rsag.report.junit import junit

    proofs = load_document(Proofs, run / PROOFS) if (run / PROOFS).exists() else None
    return junit(load_document(Verdict, run / VERDICT), breaches, proofs)
