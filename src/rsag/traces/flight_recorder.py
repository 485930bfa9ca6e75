"""torch's flight recorder: the collectives that each process group was asked for, with sizes and states.

Dumps of torch 2.3 to 2.14 (versions 1.4 to 2.10), as pickle or JSON, of NCCL and Gloo. Read from
torch/csrc/distributed/c10d/FlightRecorder.hpp and from dumps.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from rsag.errors import UsageError
from rsag.traces import pickled
from rsag.traces.events import (
    Call,
    CallSource,
    Capture,
    Format,
    Limit,
    LimitCode,
    Metadata,
    Origin,
)
from rsag.traces.skips import Skips, int64, printable
from rsag.units import format_bytes

T = TypeVar("T")

MAX_BYTES = 64 << 20  # a dump of 20,000 entries with their stacks has 10 MB
_MAX_BAD_ENTRIES = 100
_MAX_DIMENSIONS = 16

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_JSON = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:version|entries|pg_config|pg_status|comm_lib_version|nccl_version|nccl_comm_state)"\s*:'
)
_ENTRIES = re.compile(r'"entries"\s*:\s*\[')
_RANK = re.compile(r"rank[_-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,7})\D*\Z")


def sniff(head: bytes, _path: Path) -> bool:
    """Whether this is a pickle, or a JSON document that begins as a dump does."""
    return bool(_PICKLE.match(head) or _JSON.match(head))


def read(path: Path) -> Capture:
    """The calls of one rank's dump, in its order; of a cut dump, those before the cut.

    The rank is the one in the file's name, since a dump does not hold it. Raises UsageError for a pickle that wants
    more than plain data, for what is no dump, and beyond MAX_BYTES.
    """
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        expected = f"at most {format_bytes(MAX_BYTES)}"
        raise UsageError(f"{path}: too large for a flight recorder's dump", expected=expected)
    skips = Skips()
    document = _from_pickle(data, path, skips) if _PICKLE.match(data) else _from_json(data, skips)
    if not isinstance(document.fields, dict) or "entries" not in document.fields:
        raise UsageError(
            f"{path}: not a flight recorder's dump",
            expected="an object with the key 'entries'",
            do="dump it with TORCH_NCCL_DUMP_ON_TIMEOUT=1 or torch._C._distributed_c10d._dump_nccl_trace_json()",
        )
    return _capture(path, document, skips)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    fields: Any
    is_cut: bool


def _from_pickle(data: bytes, path: Path, skips: Skips) -> _Document:
    loaded = pickled.load(data, where=str(path))
    if loaded.cut_at is not None:
        skips.seen()
        skips.skip(loaded.cut_at, f"the pickle cannot be followed from here: {loaded.reason}")
    return _Document(fields=loaded.value, is_cut=loaded.cut_at is not None)


def _from_json(data: bytes, skips: Skips) -> _Document:
    text = data.decode("utf-8-sig", errors="replace")
    try:
        return _Document(fields=json.loads(text, strict=False), is_cut=False)
    except (ValueError, RecursionError):
        return _Document(fields=_salvaged(text, skips), is_cut=True)


def _salvaged(text: str, skips: Skips) -> object:
    """What a damaged JSON dump still has: the keys before its entries, and every entry that is whole."""
    start = _ENTRIES.search(text)
    if start is None:
        return None
    try:
        fields = json.loads(text[: start.end()] + "]}", strict=False)
    except (ValueError, RecursionError):
        fields = {}
    return {**fields, "entries": list(_whole_entries(text, start.end(), skips))}


def _whole_entries(text: str, position: int, skips: Skips) -> Iterator[object]:
    decoder = json.JSONDecoder(strict=False)
    num_bad = 0
    while num_bad < _MAX_BAD_ENTRIES and (position := text.find("{", position)) >= 0:
        try:
            entry, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            num_bad += 1
            skips.seen()
            skips.skip(len(text[:position].encode()), "an entry that is cut or damaged")
            position += 1
            continue
        if isinstance(entry, dict) and "profiling_name" not in entry and "record_id" not in entry:
            return  # past the entries: pg_config and the rest
        yield entry


def _capture(path: Path, document: _Document, skips: Skips) -> Capture:
    fields = document.fields
    once = _Once()
    groups = _Groups(fields, once)
    entries = fields["entries"] if isinstance(fields["entries"], (list, tuple)) else []
    calls = []
    for index, entry in enumerate(entries):
        skips.seen()
        try:
            calls.append(_call(entry, groups, once, index, skips))
        except _BadEntryError as error:
            skips.skip(index, str(error))
    backends = {call.metadata.collective.partition(":")[0] for call in calls if call.metadata.collective}
    backend = backends.pop() if len(backends) == 1 else None
    version = fields.get("version")
    return Capture(
        source=str(path),
        format=Format.FLIGHT_RECORDER,
        origin=Origin(
            rank=_rank(path),
            world_size=groups.world_size,
            backend=backend,
            library_version=_text(fields.get("comm_lib_version")) or _text(fields.get("nccl_version")),
            tool=f"flight recorder {_text(version)}" if _text(version) else None,
        ),
        calls=tuple(calls),
        limits=tuple(_limits(document, entries, backend)),
        quarantine=skips.quarantine(),
    )


class _BadEntryError(Exception):
    """An entry without what makes it one."""


def _call(entry: object, groups: _Groups, once: _Once, index: int, skips: Skips) -> Call:
    if not isinstance(entry, dict):
        raise _BadEntryError("an entry that is no object")
    name, state = _text(entry.get("profiling_name")), _text(entry.get("state"))
    if not name or not state:
        raise _BadEntryError("an entry without profiling_name and state")
    group = groups.of(entry)
    is_p2p = entry.get("is_p2p") is True
    sequence = int64(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id"))
    start_ns, end_ns = int64(entry.get("time_created_ns")), int64(entry.get("time_discovered_completed_ns")) or None
    if start_ns is not None and end_ns is not None and end_ns < start_ns:
        skips.skip(index, "completed before it was created: its times are not used")
        start_ns = end_ns = None
    if entry.get("retired") is True or (not is_p2p and groups.is_completed(entry.get("pg_id"), sequence)):
        state = "completed"  # without timing, and on Gloo, an entry that is done stays "scheduled"
    return Call(
        source=CallSource.FLIGHT_RECORDER,
        metadata=Metadata(
            collective=name,
            in_numel=once(_numel, entry.get("input_sizes")),
            out_numel=once(_numel, entry.get("output_sizes")),
            dtype=once(_dtype, entry.get("input_dtypes")) or once(_dtype, entry.get("output_dtypes")),
            group=group,
            group_size=groups.size(group),
            group_ranks=groups.ranks.get(group) if group is not None else None,
            sequence=sequence,
        ),
        process=None,
        thread=_integer(entry.get("thread_id")),
        start_ns=start_ns,
        end_ns=end_ns,
        state=state,
    )


class _Once:
    """Makes a value once of each object: a small pickle can hold one long list a million times."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, int], tuple[object, Any]] = {}

    def __call__(self, make: Callable[[object], T], of: object) -> T:
        key = make, id(of)
        if key not in self._made:
            self._made[key] = of, make(of)
        return cast(T, self._made[key][1])


class _Groups:
    """The process groups of a dump, by the names that entries use. Gloo's dumps say nothing of theirs."""

    def __init__(self, fields: Mapping[Any, Any], once: _Once) -> None:
        self.ranks: dict[str, tuple[int, ...]] = {}
        self.world_size: int | None = None
        self._completed: dict[int, int] = {}
        for key, group in _mapping(fields.get("pg_config")).items():
            ranks = once(_ranks, _mapping(group).get("ranks"))
            name = _text(_mapping(group).get("name")) or _text(key)
            if name and ranks:
                self.ranks[name] = ranks
                if _mapping(group).get("desc") == "default_pg":
                    self.world_size = len(ranks)
        for key, status in _mapping(fields.get("pg_status")).items():
            number, completed = _integer(key), _integer(_mapping(status).get("last_completed_collective"))
            if number is not None and completed is not None:
                self._completed[number] = completed

    def of(self, entry: Mapping[Any, Any]) -> str | None:
        pair = entry.get("process_group")
        if isinstance(pair, (list, tuple)) and pair and _text(pair[0]):
            return _text(pair[0])
        number = int64(entry.get("pg_id"))
        return None if number is None else str(number)

    def size(self, group: str | None) -> int | None:
        ranks = self.ranks.get(group) if group is not None else None
        return len(ranks) if ranks else None

    def is_completed(self, pg_id: object, sequence: int | None) -> bool:
        number = int64(pg_id)
        return number is not None and sequence is not None and sequence <= self._completed.get(number, -1)


def _limits(document: _Document, entries: Sequence[object], backend: str | None) -> Iterator[Limit]:
    yield Limit(
        code=LimitCode.NO_DEVICE_ROWS,
        message="a flight recorder has no kernels: it tells what was asked for; read a profile beside it",
    )
    yield Limit(
        code=LimitCode.NO_OPERATORS,
        message="a flight recorder has no reduction operators: SUM on one rank and MAX on another look alike",
    )
    if backend == "gloo":
        message = "Gloo records what it ran and not what was called: a reduce_scatter stands there as an all_reduce"
        yield Limit(code=LimitCode.NOT_AS_CALLED, message=message)
    if document.is_cut:
        message = "the dump is cut or damaged: calls are missing from it, and of JSON the groups that stand after them"
        yield Limit(code=LimitCode.TRUNCATED, message=message)
    first = int64(entries[0].get("record_id")) if entries and isinstance(entries[0], dict) else None
    if first:
        message = (
            f"the recorder's ring had dropped the {first:,} calls before the first one here: "
            "TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) makes it longer"
        )
        yield Limit(code=LimitCode.TRUNCATED, message=message)


def _rank(path: Path) -> int | None:
    """`fr.rank3.pkl`, `nccl_trace_rank_node02_5` and `_dump_14` name 3, 5 and 14."""
    found = _RANK.search(path.name) or _LAST_NUMBER.search(path.stem if path.suffix.isalpha() else path.name)
    return int(found[1]) if found else None


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return printable(value) if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    """JSON dumps write some numbers as text."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return int64(value)


def _ranks(value: object) -> tuple[int, ...] | None:
    """From `[0, 1]`, which is text in every dump that was seen."""
    if isinstance(value, str):
        if not re.fullmatch(r"\[[0-9, ]*\]", value):
            return None
        value = [int(word) for word in re.findall(r"\d{1,9}", value)]
    if not isinstance(value, (list, tuple)):
        return None
    ranks = tuple(rank for rank in value if int64(rank) is not None)
    return ranks if len(ranks) == len(value) else None


def _numel(sizes: object) -> int | None:
    """Elements of all tensors of one side together; None where that cannot be told."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        return None
    total = 0
    for shape in sizes:
        if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_DIMENSIONS:
            return None
        if any(int64(size) is None or size < 0 for size in shape):
            return None
        total += math.prod(shape)
        if int64(total) is None:
            return None
    return total


def _dtype(names: object) -> str | None:
    """The dtype that all tensors of one side share."""
    if not isinstance(names, (list, tuple)) or not names:
        return None
    first = _text(names[0])
    return first if first is not None and all(name == names[0] for name in names) else None
