"""`rsag kernels`: what really ran, from traces, dumps and logs that people already have."""

from __future__ import annotations

from pathlib import Path

import click

from rsag.cli.options import json_option, print_json
from rsag.errors import ExitCode

NSYS = """\
# Marked ranges through Nsight Systems; not run by us, for no machine of ours has nsys. It and torch.profiler cannot
# both listen to the GPU, so profile a program of your own, with torch.cuda.nvtx.range("direct") around the calls
# (`rsag emit rs_ag_in_place` prints one), and not `rsag run`, which profiles itself.
nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --output rsag torchrun --nproc-per-node=2 program.py
nsys stats --report nvtx_kern_sum --format csv rsag.nsys-rep > rsag.csv
rsag kernels rsag.csv
"""


def _print_nsys(context: click.Context) -> None:
    click.echo(NSYS, nl=False)
    context.exit()


@click.command("kernels")
@click.option(
    "--nsys",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, wanted: _print_nsys(context) if wanted else None,
    help="Print how Nsight Systems captures `rsag run --only kernels`, and end.",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--range", "ranges", metavar="GLOB", help="Ranges by name, torch's and the library's own included.")
@click.option(
    "--any-thread",
    is_flag=True,
    help="Attribute by time on any thread of the process, for backward passes: weaker evidence.",
)
@json_option
def command(files: tuple[Path, ...], ranges: str | None, any_thread: bool, as_json: bool) -> int:
    """Say what really ran in each range: one kernel, ReduceScatter + AllGather, a group, copies, or none and why.

    Reads traces of torch.profiler (JSON, plain or gzip), Nsight Systems exports (SQLite, or the CSV of
    nvtx_kern_sum), flight-recorder dumps and NCCL logs. Several files are read as the ranks of one step. A kernel
    belongs to the ranges around its launch, on the launch's own thread; without --range the user's marks are shown.
    """
    from rsag.analyze.kernels import read_kernels
    from rsag.records.codec import document
    from rsag.records.kernels import Rule
    from rsag.report.kernels import print_kernels
    from rsag.report.tables import console
    from rsag.traces.files import read_trace

    rule = Rule.ANY_THREAD if any_thread else Rule.SAME_THREAD
    answer = read_kernels([read_trace(path) for path in files], ranges, rule)
    if as_json:
        print_json(document(answer))
    else:
        print_kernels(answer, console())
    return ExitCode.DONE
