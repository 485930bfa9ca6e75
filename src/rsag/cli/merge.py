"""`rsag merge`: several launches of one plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rsag.cli.options import json_option, print_json
from rsag.errors import ExitCode


@click.command("merge")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path), metavar="RUN...")
@json_option
def command(runs: tuple[Path, ...], as_json: bool) -> int:
    """Say what holds across several launches of one plan; needs six for an outcome, and no torch.

    An interval within one launch knows nothing of how launches differ. The seed may differ between runs; plan,
    hardware, versions and variables may not. A run whose own verdict is fail or invalid ends the merge with its exit
    code, 1 before 3.
    """
    return merge_runs(runs, as_json=as_json)


def merge_runs(runs: Sequence[Path], *, as_json: bool, into: Path | None = None) -> int:
    """Merge `runs`, print the outcome, and write it to the directory `into`, if there is one.

    The exit code is that of the runs' own verdicts: launches that agree on a time prove no right results.
    """
    from rsag.analyze.judged import read_judged
    from rsag.analyze.merge import merge
    from rsag.cli.run import exit_code
    from rsag.records.codec import document, dump_document
    from rsag.records.merge import MERGE
    from rsag.report.merge import print_merge
    from rsag.report.tables import console

    merged = merge([read_judged(run) for run in runs])
    if into is not None:
        dump_document(merged, into / MERGE)
    if as_json:
        print_json(document(merged))
    else:
        print_merge(merged, console())
    codes = []
    for source in merged.runs:
        code = exit_code(source.verdict.value)
        if code:
            click.echo(f"rsag: {source.directory}: the verdict is {source.verdict.value}", err=True)
            codes.append(code)
    return min(codes, default=ExitCode.DONE)
