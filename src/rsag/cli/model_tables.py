"""The tables of `rsag model`: one for compositions, one for training steps, and a timeline."""

from __future__ import annotations

from rich.text import Text

from rsag.models.memory import TRAINING_STEP, LiveBytes, MemoryModel, MemoryRow, TrainingSizes
from rsag.report.tables import console, plain_table
from rsag.units import GIB, format_bytes

_TRAINING_COLUMNS = {
    "params": ("parameter",),
    "grads": ("gradient",),
    "optim": ("optimizer",),
    "buffers": ("gathered", "staging", "padding", "shard", "input"),
}
"""Roles by the column they are in; activations have none, and are in the total."""


def print_model(model: MemoryModel) -> None:
    """Each row with steady and peak bytes and wire; at 80 columns."""
    out = console()
    steps = [row for row in model.rows if row.target == TRAINING_STEP]
    others = [row for row in model.rows if row.target != TRAINING_STEP]
    out.print(f"Predicted for one of {model.world_size:,} ranks, M = {_bytes(model.bytes)}.\n", style="dim")
    if others:
        _print_compositions(others, model.bytes)
    if others and steps:
        out.print()
    if steps:
        assert model.training is not None
        _print_steps(steps, model.training)


def print_timeline(row: MemoryRow) -> None:
    """What is live after each change, by role."""
    out = console()
    out.print(f"\n{row.name}, live after each change:", style="bold")
    if row.not_claimed is not None:
        out.print(f"  no claim: {row.not_claimed}")
    table = plain_table()
    table.add_column("live", justify="right")
    table.add_column("after")
    table.add_column("by role")
    for moment in row.timeline:
        roles = ", ".join(f"{role} {_bytes(live)}" for role, live in moment.by_role.items())
        table.add_row(_bytes(moment.total_bytes), moment.what, roles)
    out.print(table)


def _print_compositions(rows: list[MemoryRow], payload_bytes: int) -> None:
    table = plain_table()
    table.add_column("composition", min_width=26, overflow="fold")
    for head in ("steady", "peak", "wire"):
        table.add_column(head, justify="right")
    table.add_column("wire/M", justify="right")
    target = None
    refused = []
    for row in rows:
        if row.target != target:
            target = row.target
            table.add_row(Text(f"reaching {target}", style="bold"))
        if row.steady is None or row.peak is None or row.wire_bytes is None:
            refused.append(row)
            table.add_row(f"  {row.name}", *[Text("-", style="dim")] * 4)
            continue
        table.add_row(
            f"  {row.name}",
            _bytes(row.steady.total_bytes),
            _bytes(row.peak.total_bytes),
            _bytes(row.wire_bytes),
            f"{row.wire_bytes / payload_bytes:.4g}",
        )
    out = console()
    out.print(table)
    for row in refused:
        out.print(f"- {row.not_claimed}", style="dim")


def _print_steps(rows: list[MemoryRow], sizes: TrainingSizes) -> None:
    table = plain_table()
    table.add_column("training step", min_width=17)
    for head in ("total", *_TRAINING_COLUMNS, "wire"):
        table.add_column(head, justify="right")
    for row in rows:
        assert row.steady is not None
        assert row.peak is not None
        assert row.wire_bytes is not None
        table.add_row(row.name, *_columns(row.steady), _bytes(row.wire_bytes))
        table.add_row(Text("  at the peak", style="dim"), *_columns(row.peak))
    out = console()
    out.print(table)
    out.print(
        f"\n{sizes.num_layers} layers; parameters {sizes.param_dtype.value}, gradients {sizes.grad_dtype.value}, "
        f"{sizes.optimizer.value} {sizes.optimizer_dtype.value}. First line: after the update.",
        style="dim",
    )
    if sizes.activation_bytes:
        out.print("Activations are in the totals only.", style="dim")


def _columns(live: LiveBytes) -> list[str]:
    of_columns = (sum(live.by_role.get(role, 0) for role in roles) for roles in _TRAINING_COLUMNS.values())
    return [_bytes(live.total_bytes), *(_bytes(count) if count else "" for count in of_columns)]


def _bytes(count: float) -> str:
    """As elsewhere, and in TiB where that is what people would say."""
    return f"{count / (1024 * GIB):.4g} TiB" if count >= 1024 * GIB else format_bytes(count)
