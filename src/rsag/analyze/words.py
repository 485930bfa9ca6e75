"""One word for each collective, whatever a file calls it: torch's name without prefixes and variants."""

from __future__ import annotations

import functools
import re

from rsag.collectives import Kind
from rsag.records.kernels import ClaimAbout
from rsag.traces.events import CallSource, Metadata
from rsag.traces.kernel_names import decode

ALL_TO_ALL, GATHER, SCATTER, SEND, RECV = "all_to_all", "gather", "scatter", "send", "recv"
"""The words beyond `Kind` that files use."""

# Longest beginnings first: allgather is no gather, reducescatter no reduce, sendrecv no send.
_BEGINNINGS: tuple[tuple[str, str], ...] = (
    ("allreduce", Kind.ALL_REDUCE.value),
    ("reducescatter", Kind.REDUCE_SCATTER.value),
    ("allgather", Kind.ALL_GATHER.value),
    ("alltoall", ALL_TO_ALL),
    ("broadcast", Kind.BROADCAST.value),
    ("bcast", Kind.BROADCAST.value),
    ("barrier", Kind.BARRIER.value),
    ("sendrecv", Kind.SENDRECV.value),
    ("gather", GATHER),
    ("scatter", SCATTER),
    ("reduce", Kind.REDUCE.value),
    ("send", SEND),
    ("recv", RECV),
)
_GROUP_END = re.compile(r"\bnccl:coalesced|GroupEnd|end_?coalescing", re.IGNORECASE)
_PREFIX = re.compile(r"\A(?:[a-z0-9]+(?:_functional)?::|[a-z0-9]+:|nccl)", re.IGNORECASE)

P2P = frozenset({Kind.SENDRECV.value, SEND, RECV})

# What NCCL itself runs for a call: a kernel of the second kind is no disagreement with a caller of the first.
_RUNS_AS: dict[str, frozenset[str]] = {
    Kind.SENDRECV.value: frozenset({ALL_TO_ALL, GATHER, SCATTER, *P2P}),
    Kind.ALL_REDUCE.value: frozenset({Kind.BARRIER.value}),
}


@functools.lru_cache(maxsize=4096)
def word(spelling: str | None) -> str | None:
    """`c10d::_reduce_scatter_base_`, `nccl:reduce_scatter`, `ncclReduceScatter` all give `reduce_scatter`.

    None for what is no collective: `wait`, `init`, `coalesced`, `ncclGroupEnd`.
    """
    if spelling is None:
        return None
    bare = _PREFIX.sub("", _PREFIX.sub("", spelling.strip())).lower().replace("_", "")
    return next((name for beginning, name in _BEGINNINGS if bare.startswith(beginning)), None)


def is_group_end(spelling: str | None) -> bool:
    """Whether a call only ends a group of calls, and starts what was asked for within it."""
    return spelling is not None and _GROUP_END.search(spelling) is not None


def backend(spelling: str | None) -> str | None:
    """`gloo` of `gloo:all_reduce`; None where the spelling names no backend."""
    found = re.match(r"([a-z0-9]+):(?!:)", spelling or "")
    return found[1] if found else None


@functools.lru_cache(maxsize=1024)
def name_claims(kernel: str) -> str | None:
    """The collective that may be claimed from a kernel's name alone; None where it is the entry point of many."""
    decoded = decode(kernel)
    return word(decoded.claim(ClaimAbout.COLLECTIVE).value) if decoded else None


def name_says(kernel: str) -> str | None:
    """The collective in a kernel's name, whatever that is worth: an entry point of many has a name too."""
    return name_claims(kernel) or (Kind.SENDRECV.value if "sendrecv" in kernel[:256].lower() else None)


def runs_as(name: str, caller: str | None) -> bool:
    """Whether a kernel whose name says `name` is what the library runs for a call of `caller`."""
    return name == caller or caller in _RUNS_AS.get(name, frozenset())


@functools.lru_cache(maxsize=4096)
def merged(records: tuple[tuple[CallSource, Metadata], ...]) -> Metadata:
    """One description from several records of one call: each field from the closest to the library that has it."""
    ranked = [metadata for _, metadata in sorted(records, key=lambda record: _TRUST[record[0]])]
    known = {name: [value for one in ranked if (value := getattr(one, name)) is not None] for name in _FIELDS}
    return Metadata(**{name: values[0] for name, values in known.items() if values})


_TRUST: dict[CallSource, int] = {
    CallSource.PARAM_COMMS: 0,
    CallSource.C10D: 1,
    CallSource.FLIGHT_RECORDER: 2,
    CallSource.WORKER: 3,
    CallSource.LIBRARY: 4,
}
_FIELDS = tuple(Metadata.__dataclass_fields__)
