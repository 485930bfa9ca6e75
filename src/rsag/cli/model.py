"""`rsag model`: predictions at any scale, from one rank's program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rsag.cli.options import json_option, parse_dtype, parse_world_size, print_json
from rsag.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from rsag.models.memory import Optimizer


@click.group()
def command() -> None:
    """Predict what compositions and training steps cost, at any scale. Nothing runs, and torch is not needed."""


@command.command()
@click.option("--world-size", type=int, default=4, show_default=True, help="Ranks N.")
@click.option("--bytes", "size", default="256MiB", show_default=True, help="Full payload M, or all parameters: 1TiB.")
@click.option(
    "--composition", "names", metavar="NAME[,NAME]...", help="Compositions.  [default: all, or none with --training]"
)
@click.option(
    "--training", metavar="NAME[,NAME]...", help="Training steps, or how their names begin: ddp,zero,fsdp,mistake; all."
)
@click.option("--layers", type=int, default=16, show_default=True, help="Equal layers of the trained model.")
@click.option("--param-dtype", default="float32", show_default=True, help="Element type of payload and parameters.")
@click.option("--grad-dtype", help="Of gradients.  [default: that of parameters]")
@click.option("--optimizer-dtype", help="Of the optimizer's state.  [default: that of parameters, as in torch]")
@click.option("--optimizer", default="adam", show_default=True, help="sgd, momentum, adam or adam_master.")
@click.option("--activations", default="0", show_default=True, help="Bytes that a layer keeps for backward: 2MiB.")
@click.option("--timeline", metavar="NAME", help="Also what is live after each allocation and release.")
@json_option
def memory(
    world_size: int,
    size: str,
    names: str | None,
    training: str | None,
    layers: int,
    param_dtype: str,
    grad_dtype: str | None,
    optimizer_dtype: str | None,
    optimizer: str,
    activations: str,
    timeline: str | None,
    as_json: bool,
) -> None:
    """Predict steady and peak memory and bytes on the wire, per rank.

    Steady is what is live at the end, the result included; for a training step after the update, gradients included.
    Peak is the most at once. Only what a program allocates counts: no communicators, workspaces or fragmentation.
    """
    from rsag.cli.model_tables import print_model, print_timeline
    from rsag.compositions import COMPOSITIONS, find
    from rsag.compositions.training import TRAINING_STEPS, find_steps
    from rsag.models.memory import TrainingSizes, equal_layers, predict
    from rsag.records.codec import document
    from rsag.units import parse_bytes

    dtype, num_bytes = parse_dtype(param_dtype), parse_bytes(size)
    compositions = [find(name) for name in _names(names)] if names else [] if training else list(COMPOSITIONS)
    found = [step for name in _names(training) for step in (TRAINING_STEPS if name == "all" else find_steps(name))]
    steps = list(dict.fromkeys(found))
    rows = [*(one.name for one in compositions), *(step.name for step in steps)]
    if timeline is not None and timeline not in rows:
        raise unknown_name("row for a timeline", timeline, rows)
    sizes = None
    if steps:
        sizes = TrainingSizes(
            num_layers=layers,
            layer_numel=equal_layers(num_bytes, layers, dtype),
            param_dtype=dtype,
            grad_dtype=parse_dtype(grad_dtype or param_dtype),
            optimizer_dtype=parse_dtype(optimizer_dtype or param_dtype),
            optimizer=_optimizer(optimizer),
            activation_bytes=parse_bytes(activations),
        )
    model = predict(
        world_size=parse_world_size(world_size),
        num_bytes=num_bytes,
        dtype=dtype,
        compositions=compositions,
        steps=steps,
        sizes=sizes,
        timeline_of=timeline,
    )
    if as_json:
        print_json(document(model))
        return
    print_model(model)
    for row in model.rows:
        if row.name == timeline:
            print_timeline(row)


def _optimizer(text: str) -> Optimizer:
    from rsag.models.memory import Optimizer

    try:
        return Optimizer(text.strip().lower())
    except ValueError:
        raise unknown_name("optimizer", text, (one.value for one in Optimizer)) from None


def _names(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",")] if text is not None else []
    if "" in names:
        raise UsageError("an empty name in a list", got=repr(text), expected="names separated by commas")
    return names
