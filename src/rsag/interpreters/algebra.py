"""What the machine asks of values: symbols, exact numbers, or nothing at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rsag.reduction import ReduceOp

Cells = list[Any]
"""One value per element; of which type is the algebra's business."""


class Algebra(Protocol):
    """Where values come from and how they are reduced."""

    def inputs(self, rank: int, numel: int) -> Cells:
        """What the caller of `rank` contributes."""

    def unwritten(self, numel: int) -> Cells: ...

    def released(self, numel: int) -> Cells: ...

    def constant(self, value: str | float, numel: int) -> Cells: ...

    def reduce(self, op: ReduceOp, columns: Sequence[Cells]) -> Cells:
        """Element by element over the columns, one column per contributor."""

    def apply(self, name: str, columns: Sequence[Cells]) -> Cells: ...

    def why_unreadable(self, cells: Cells) -> str | None:
        """Why no program may read these, or None."""
