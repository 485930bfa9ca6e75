"""The two cuts that compositions share."""

from __future__ import annotations

from rsag.programs import View


def shard(view: View, index: int, parts: int) -> View:
    """Part `index` of `view` cut into equal `parts`."""
    q = len(view) // parts
    return view[index * q : (index + 1) * q]


def split(numel: int, parts: int) -> list[int]:
    """Sizes of `parts` pieces of `numel`, as equal as can be, the larger first."""
    base, extra = divmod(numel, parts)
    return [base + (index < extra) for index in range(parts)]
