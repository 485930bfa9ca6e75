"""How it is done: one file each, listed in the order of the tables.

Add a file and a line here, and it is proved, predicted and run.
"""

from __future__ import annotations

from rsag.collectives import Kind
from rsag.compositions import (
    native,
    peer,
    reduce_broadcast,
    reduce_scatter_all_gather,
    reduce_scatter_only,
    ring,
    staged,
    two_level,
)
from rsag.errors import unknown_name
from rsag.programs import Composition

COMPOSITIONS: tuple[Composition, ...] = (
    native.ALL_REDUCE,
    reduce_scatter_all_gather.NAIVE,
    reduce_scatter_all_gather.EARLY_RELEASE,
    reduce_scatter_all_gather.IN_PLACE,
    reduce_scatter_all_gather.PADDED_NAIVE,
    reduce_scatter_all_gather.PADDED_EARLY_RELEASE,
    reduce_scatter_all_gather.PADDED_IN_PLACE,
    reduce_scatter_all_gather.CHUNKED,
    staged.STAGED,
    reduce_broadcast.REDUCE_BROADCAST,
    ring.ALL_REDUCE,
    two_level.TWO_LEVEL,
    peer.PEER,
    native.REDUCE_SCATTER,
    native.REDUCE_SCATTER_IN_PLACE,
    reduce_scatter_only.ONLY,
    reduce_scatter_only.COPIED_OUT,
    ring.REDUCE_SCATTER,
    ring.REDUCE_SCATTER_IN_PLACE,
    native.ALL_GATHER,
    native.ALL_GATHER_IN_PLACE,
    ring.ALL_GATHER,
    ring.ALL_GATHER_IN_PLACE,
)


def find(name: str) -> Composition:
    """The composition called `name`; UsageError with the nearest names where there is none."""
    for composition in COMPOSITIONS:
        if composition.name == name:
            return composition
    raise unknown_name("composition", name, (composition.name for composition in COMPOSITIONS))


def for_target(target: Kind) -> tuple[Composition, ...]:
    """The compositions that reach `target`, the collective itself first."""
    return tuple(composition for composition in COMPOSITIONS if composition.target is target)
