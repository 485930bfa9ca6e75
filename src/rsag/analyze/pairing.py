"""Whether ReduceScatters and AllGathers belong together: each AllGather gathers what a ReduceScatter scattered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rsag.collectives import Kind
from rsag.traces.events import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """`differs` says which call has no partner and why, None where all have one; `unknown` what was not recorded."""

    differs: str | None
    unknown: tuple[str, ...]


def pair(collectives: Sequence[tuple[str | None, Metadata]]) -> Pairing:
    """Give each AllGather the first ReduceScatter before it of the same group, dtype and mirrored counts.

    What a file does not record cannot differ: it is listed in `unknown`, each aspect once.
    """
    scattered: list[Metadata] = []
    unknown: dict[str, None] = {}
    for collective, metadata in collectives:
        if collective == Kind.REDUCE_SCATTER.value:
            scattered.append(metadata)
            continue
        partner = next((one for one in scattered if not _differences(one, metadata)), None)
        if partner is None:
            return Pairing(differs=_no_partner(scattered, metadata), unknown=())
        scattered.remove(partner)
        unknown.update(dict.fromkeys(_unknown(partner, metadata)))
    if scattered:
        differs = f"{len(scattered)} ReduceScatter{'s have' if len(scattered) > 1 else ' has'} no AllGather after it"
        return Pairing(differs=differs, unknown=())
    return Pairing(differs=None, unknown=tuple(unknown))


def _aspects(scatter: Metadata, gather: Metadata) -> dict[str, tuple[object, object]]:
    """What must be equal: group by name and by its size, dtype, and counts mirrored."""
    return {
        "group": (scatter.group, gather.group),
        "group size": (scatter.group_size, gather.group_size),
        "ranks": (scatter.group_ranks, gather.group_ranks),
        "dtype": (scatter.dtype, gather.dtype),
        "shard": (scatter.out_numel, gather.in_numel),
        "full": (scatter.in_numel, gather.out_numel),
    }


def _differences(scatter: Metadata, gather: Metadata) -> list[str]:
    return [
        f"{name} {one} and {other}"
        for name, (one, other) in _aspects(scatter, gather).items()
        if one is not None and other is not None and one != other
    ]


def _unknown(scatter: Metadata, gather: Metadata) -> list[str]:
    aspects = _aspects(scatter, gather)
    missing = {name for name, pair in aspects.items() if None in pair}
    unknown = ["group"] if {"group", "ranks"} <= missing else []
    unknown += ["dtype"] if "dtype" in missing else []
    return unknown + (["counts"] if {"shard", "full"} & missing else [])


def _no_partner(scattered: Sequence[Metadata], gather: Metadata) -> str:
    if not scattered:
        return "an AllGather has no ReduceScatter before it"
    differences = ", ".join(_differences(scattered[-1], gather))
    return f"an AllGather does not gather what the ReduceScatter before it scattered: {differences}"
