"""NVTX ranges of an Nsight Systems export: names, domains, and which of them are calls.

As the report nvtx_kern_sum takes them: push/pop and start/end ranges whose two ends are on one thread; a range that was
still open is closed at the last NVTX time of the capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rsag.traces.events import Call, CallSource, Metadata, Range, RangeKind
from rsag.traces.nsys_database import STRINGS, Database, Processes, Table
from rsag.traces.skips import Skips, int64, printable

# ENUM_NSYS_EVENT_TYPE: push/pop, start/end, and both as nvtxt imports them; a domain's name.
_RANGE_TYPES = (59, 60, 70, 71)
_DOMAIN_CREATE = 75

# torch.autograd.profiler.emit_nvtx adds to each name what tells one call from the next.
_TORCH_SUFFIX = re.compile(r", (?:seq|op_id|sizes|input_op_ids) ?= .*\Z", re.DOTALL)
_TORCH_COMMUNICATION = re.compile(
    r"(?:c10d|_c10d_functional|c10d_functional|fsdp|FSDP)::|(?:nccl|gloo|mpi|ucc|xccl):|record_param_comms"
    r"|DistributedDataParallel\.|torch\.distributed\."
)
_TORCH_OPERATOR = re.compile(r"\w+::")
_NCCL_RANGE = re.compile(r"nccl[A-Z]\w*")
_NCCL_CALL = re.compile(
    r"nccl(?:AllReduce|ReduceScatter|AllGather|Broadcast|Bcast|Reduce|All[Tt]oAll|Gather|Scatter|Send|Recv|GroupEnd)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvtxRange:
    """A range, and the call that it stands for: NCCL's own and c10d's operators do."""

    range: Range
    call: Call | None


def read_ranges(database: Database, table: Table, processes: Processes, skips: Skips) -> Iterator[NvtxRange]:
    """The user's and NCCL's ranges, and those of torch's operators that have to do with communication."""
    domains = _domains(database, table, processes)
    last = int64(database.first(f'SELECT max(max("start"), coalesce(max("end"), 0)) FROM {table.quoted}')) or 0
    types = ", ".join(map(str, _RANGE_TYPES))
    for rowid, start, end, global_tid, end_global_tid, domain, text in database.rows(
        f'SELECT t.rowid, t."start", t."end", t."globalTid", {table.column("endGlobalTid")},'
        f' {table.column("domainId")}, {_text(database, table)} WHERE t."eventType" IN ({types})'
    ):
        skips.seen()
        problem = _problem(start, last if end is None else end, global_tid, end_global_tid, text)
        if problem is not None:
            skips.skip(int64(rowid) or 0, f"an NVTX range with {problem}")
            continue
        process, thread = processes.of(global_tid), global_tid & 0xFFFFFF
        named = _named(printable(text), int64(domain) or 0, domains.get((process, domain)))
        if named is not None:
            name, kind = named
            yield _range(name, kind, text, (process, thread), (start, last if end is None else end))


def _text(database: Database, table: Table) -> str:
    """The name of an event, and FROM: of one file some names are in text, others, the registered, in StringIds."""
    strings = database.table(STRINGS)
    name, join = table.column("text"), ""
    if strings is not None and "textId" in table.columns:
        name, join = f"coalesce(s.value, {name})", f'LEFT JOIN {strings.quoted} s ON s.id = t."textId"'
    return f"substr({name}, 1, 4096) FROM {table.quoted} t {join}"


def _domains(database: Database, table: Table, processes: Processes) -> dict[tuple[int, Any], str]:
    """The name of each domain, by process and number: numbers are each process's own."""
    rows = database.rows(
        f'SELECT t."globalTid", {table.column("domainId")}, {_text(database, table)}'
        f' WHERE t."eventType" = {_DOMAIN_CREATE}'
    )
    return {
        (processes.of(global_tid), domain): printable(name)
        for global_tid, domain, name in rows
        if int64(global_tid) is not None and isinstance(name, str)
    }


def _problem(start: object, end: object, global_tid: object, end_global_tid: object, text: object) -> str | None:
    first, last = int64(start), int64(end)
    if first is None or last is None:
        return "no start"
    if last < first:
        return f"a duration of {last - first} ns"
    if int64(global_tid) is None:
        return "no thread"
    if end_global_tid is not None and end_global_tid != global_tid:
        return "its end on another thread: it encloses the launches of neither"
    return None if isinstance(text, str) else "no name"


def _named(text: str, domain: int, domain_name: str | None) -> tuple[str, RangeKind] | None:
    """The range's name and whose it is; None for operators of torch that have nothing to do with communication."""
    if domain_name == "NCCL" or (domain and domain_name is None and _NCCL_RANGE.fullmatch(text)):
        return f"NCCL:{text}", RangeKind.LIBRARY
    if domain:
        return f"{domain_name}:{text}" if domain_name else text, RangeKind.MARK
    bare = _TORCH_SUFFIX.sub("", text)
    if _TORCH_COMMUNICATION.match(bare):
        return bare, RangeKind.FRAMEWORK
    if bare.startswith("aten::") or (bare != text and _TORCH_OPERATOR.match(bare)):
        return None
    return bare, RangeKind.MARK


def _range(name: str, kind: RangeKind, text: str, place: tuple[int, int], times: tuple[int, int]) -> NvtxRange:
    (process, thread), (start, end) = place, times
    return NvtxRange(
        range=Range(name=name, kind=kind, process=process, thread=thread, start_ns=start, end_ns=end),
        call=_call(name, kind, text, place, times),
    )


def _call(name: str, kind: RangeKind, text: str, place: tuple[int, int], times: tuple[int, int]) -> Call | None:
    if kind is RangeKind.LIBRARY and _NCCL_CALL.match(text):
        source = CallSource.LIBRARY
    elif name.startswith("c10d::"):
        source = CallSource.C10D
    else:
        return None
    return Call(
        source=source,
        metadata=Metadata(collective=name.removeprefix("NCCL:")),
        process=place[0],
        thread=place[1],
        start_ns=times[0],
        end_ns=times[1],
    )
