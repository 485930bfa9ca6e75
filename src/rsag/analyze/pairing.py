"""Whether ReduceScatters and AllGathers fit: before each AllGather is a ReduceScatter whose result it may gather."""

from __future__ import annotations

from collections import Counter
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
    """Give each AllGather a ReduceScatter before it of the same group, dtype and mirrored counts.

    What a file does not record of every call is not compared, and listed in `unknown`. Whether the data are the same is
    in no file. The time grows with the number of calls.
    """
    compared = [name for name, (here, there) in _ASPECTS.items() if _is_recorded(collectives, here, there)]
    scattered: Counter[tuple[object, ...]] = Counter()
    last: Metadata | None = None
    num_left = 0
    for collective, metadata in collectives:
        if collective == Kind.REDUCE_SCATTER.value:
            scattered[tuple(getattr(metadata, _ASPECTS[name][0]) for name in compared)] += 1
            last, num_left = metadata, num_left + 1
            continue
        fitting = tuple(getattr(metadata, _ASPECTS[name][1]) for name in compared)
        if not scattered[fitting]:
            return Pairing(differs=_no_partner(last, metadata, compared), unknown=())
        scattered[fitting] -= 1
        num_left -= 1
    if num_left:
        differs = f"{num_left} ReduceScatter{'s have' if num_left > 1 else ' has'} no AllGather after it"
        return Pairing(differs=differs, unknown=())
    return Pairing(differs=None, unknown=_unknown(compared))


# What must be equal, of the ReduceScatter and of the AllGather: counts are mirrored.
_ASPECTS: dict[str, tuple[str, str]] = {
    "group": ("group", "group"),
    "group size": ("group_size", "group_size"),
    "ranks": ("group_ranks", "group_ranks"),
    "dtype": ("dtype", "dtype"),
    "shard": ("out_numel", "in_numel"),
    "full": ("in_numel", "out_numel"),
}


def _is_recorded(collectives: Sequence[tuple[str | None, Metadata]], here: str, there: str) -> bool:
    return all(
        getattr(metadata, here if collective == Kind.REDUCE_SCATTER.value else there) is not None
        for collective, metadata in collectives
    )


def _unknown(compared: Sequence[str]) -> tuple[str, ...]:
    known = set(compared)
    missing = {"group": not known & {"group", "ranks"}, "dtype": "dtype" not in known}
    missing["counts"] = not {"shard", "full"} <= known
    return tuple(name for name, is_missing in missing.items() if is_missing)


def _no_partner(scatter: Metadata | None, gather: Metadata, compared: Sequence[str]) -> str:
    if scatter is None:
        return "an AllGather has no ReduceScatter before it"
    sides = {name: (getattr(scatter, _ASPECTS[name][0]), getattr(gather, _ASPECTS[name][1])) for name in compared}
    differences = ", ".join(f"{name} {one} and {other}" for name, (one, other) in sides.items() if one != other)
    if not differences:
        return "an AllGather has no ReduceScatter of its own before it"
    return f"an AllGather does not gather what the ReduceScatter before it scattered: {differences}"
