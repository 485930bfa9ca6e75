"""What a backend can do, as a terminal table: operators down, dtypes across."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.collectives import Kind
from rsag.records.capability import Ability, Capabilities, Capability
from rsag.reduction import DType
from rsag.report.tables import MARKS, plain_table

_MARK = {
    Ability.SUPPORTED: MARKS["good"],
    Ability.REFUSED: ("-", "dim"),
    Ability.WRONG: MARKS["bad"],
    Ability.CRASHED: ("☠", "bold red"),
}
_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i", "complex": "c", "bool": "bool"}


def print_capabilities(capabilities: Capabilities, out: Console) -> None:
    """One table per backend, a legend, and what it says of each thing that it does not do right."""
    out.print(
        Text(f"{capabilities.backend.value}, torch {capabilities.torch}, {capabilities.world_size} ranks", style="bold")
    )
    out.print(capability_table(capabilities))
    out.print("✓ right values   - refused   ✗ ends with wrong values   ☠ takes its process down", style="dim")
    for reason, rows in _by_reason(capabilities).items():
        out.print(f"  {_abilities(rows)}: {reason}\n    {_where(rows)}")


def capability_table(capabilities: Capabilities) -> Table:
    table = plain_table()
    table.add_column("collective", no_wrap=True)
    table.add_column("op", no_wrap=True)
    for dtype in DType:
        table.add_column(_short(dtype), justify="center", no_wrap=True)
    plain = [row for row in capabilities.rows if row.shape == "1-D"]
    for collective, op in dict.fromkeys((row.collective, row.op) for row in plain):
        cells = {row.dtype: Text(*_MARK[row.ability]) for row in plain if (row.collective, row.op) == (collective, op)}
        table.add_row(collective.value, op.value if op else "", *(cells.get(dtype, Text(" ")) for dtype in DType))
    return table


def _short(dtype: DType) -> str:
    kind = dtype.value.rstrip("0123456789")
    return _SHORT[kind] + dtype.value[len(kind) :]


def _by_reason(capabilities: Capabilities) -> dict[str, list[Capability]]:
    reasons: dict[str, list[Capability]] = {}
    for row in capabilities.rows:
        if row.ability is not Ability.SUPPORTED:
            reasons.setdefault(row.reason, []).append(row)
    return reasons


def _abilities(rows: list[Capability]) -> str:
    return ", ".join(dict.fromkeys(row.ability.value for row in rows))


def _where(rows: list[Capability]) -> str:
    """Which calls, briefly: reduce_scatter sum 0-dim float32."""

    def say(kind: Kind, row: Capability) -> str:
        shape = "" if row.shape == "1-D" else f" {row.shape}"
        return f"{kind.value}{'' if row.op is None else ' ' + row.op.value}{shape} {row.dtype.value}"

    names = [say(row.collective, row) for row in rows]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
