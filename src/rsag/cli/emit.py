"""`rsag emit`: a composition as one file of plain torch, on standard output."""

from __future__ import annotations

import click

from rsag.cli.options import parse_dtype, parse_op, parse_world_size
from rsag.compositions import find
from rsag.errors import UsageError
from rsag.interpreters.emit import emit
from rsag.programs import record_all


@click.command()
@click.argument("composition")
@click.option(
    "--world-size", type=int, default=4, show_default=True, help="Ranks; the text holds for this number only."
)
@click.option("--numel", type=int, default=20, show_default=True, help="Elements of the full payload.")
@click.option("--op", default="sum", show_default=True, help="Reduction operator.")
@click.option("--dtype", default="float32", show_default=True, help="Element type of the check and of padding.")
def command(composition: str, world_size: int, numel: int, op: str, dtype: str) -> None:
    """Print COMPOSITION as plain torch code, which checks itself under torchrun."""
    found = find(composition)
    if numel < 1:
        raise UsageError("there is nothing to communicate", got=f"{numel} elements", expected="1 or more")
    programs = record_all(found, world_size=parse_world_size(world_size), numel=numel, op=parse_op(op))
    click.echo(emit(programs, parse_dtype(dtype)), nl=False)
