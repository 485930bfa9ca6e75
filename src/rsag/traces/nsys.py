"""Nsight Systems' SQLite exports: kernels that communicate, their launches, NVTX ranges, graph launches.

From `nsys export --type sqlite`, schemas 3.24 and 3.25 and older ones with fewer columns. Joins nothing: which range a
kernel belongs to is for `analyze`. Times are the export's own nanoseconds, from the start of the capture.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rsag.traces.events import (
    Capture,
    DeviceOperation,
    Format,
    GraphLaunch,
    Launch,
    Limit,
    LimitCode,
    OperationKind,
    Origin,
)
from rsag.traces.kernel_names import is_communication
from rsag.traces.nsys_database import CALLS, COPIES, GRAPHS, KERNELS, RANGES, STRINGS, Database, Processes, Table
from rsag.traces.nsys_ranges import NvtxRange, read_ranges
from rsag.traces.skips import Skips, int64, printable

_CAPTURE = "capture with --trace=cuda,nvtx"
# ENUM_CUDA_MEMCPY_OPER: within a device as groups of one do, between devices as copy-engine collectives do.
_DEVICE_TO_DEVICE, _PEER_TO_PEER = 8, 10
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")


def sniff(head: bytes, _path: Path) -> bool:
    """Whether this is a SQLite database; whether it is Nsight's, reading tells."""
    return head.startswith(b"SQLite format 3\0")


def read(path: Path) -> Capture:
    """All that bears on communication, for every process and device of the export.

    Raises UsageError for a database that is not Nsight Systems'. What a missing table or column leaves unanswered is in
    the limits; rows that cannot be are in the quarantine, by rowid.
    """
    skips = Skips()
    with contextlib.closing(Database(path, skips)) as database:
        return _Reader(database, skips).capture(path)


class _Reader:
    def __init__(self, database: Database, skips: Skips) -> None:
        self._database, self._skips = database, skips
        self._processes = Processes()
        self._limits: list[Limit] = []

    def capture(self, path: Path) -> Capture:
        kernels, num_other = self._kernels()
        operations = (*kernels, *self._copies())
        graph_launches = tuple(self._graph_launches())
        self._keep((*operations, *graph_launches))
        launches = tuple(self._launches())
        ranges = self._ranges()
        self._limit_graphs(graph_launches)
        message = "Nsight Systems records neither counts nor dtypes of calls; a torch.profiler trace does"
        self._limit(LimitCode.NO_COUNTS, message)
        self._limit_damage(path)
        return Capture(
            source=str(path),
            format=Format.NSYS_SQLITE,
            origin=self._origin(),
            operations=operations,
            launches=launches,
            graph_launches=graph_launches,
            ranges=tuple(one.range for one in ranges),
            calls=tuple(one.call for one in ranges if one.call is not None),
            num_other_kernels=num_other,
            limits=tuple(self._limits),
            quarantine=self._skips.quarantine(),
        )

    # -- what ran on devices ---------------------------------------------------------------------------------------

    def _kernels(self) -> tuple[tuple[DeviceOperation, ...], int]:
        """The kernels that communicate, and the number of the others."""
        table, strings = self._database.table(KERNELS), self._database.table(STRINGS)
        names = [name for name in _KERNEL_NAMES if table and name in table.columns]
        if table is None or strings is None or not names or table.missing("start", "end", "deviceId"):
            message = "the export has no kernels with names: what ran on the GPUs cannot be told; " + _CAPTURE
            self._limit(LimitCode.NO_KERNEL_TABLE, message)
            return (), 0
        id_ = f"coalesce({', '.join(map(table.column, names))}, NULL)"
        self._keep_names(table, strings, id_)
        rows = self._database.rows(
            f"SELECT t.rowid, c.name, {_device_columns(table)}"
            f" FROM {table.quoted} t CROSS JOIN temp.communication c ON c.id = {id_}"
        )
        seen = self._skips.num_seen
        kernels = tuple(self._operations(OperationKind.KERNEL, rows))
        num_communication = self._skips.num_seen - seen
        count = int64(self._database.first(f"SELECT count(*) FROM {table.quoted}")) or 0
        if not count:
            message = "the capture has no kernel rows: no GPU activity was recorded, which is not the same as none"
            self._limit(LimitCode.NO_DEVICE_ROWS, message)
        return kernels, max(count - num_communication, 0)

    def _keep_names(self, kernels: Table, strings: Table, id_: str) -> None:
        """Kernels number millions and their names hundreds: names are judged first, and rows by their ids."""
        used = f"WHERE t.id IN (SELECT DISTINCT {id_} FROM {kernels.quoted} t)"
        self._keep_names_of(strings, used)
        if self._database.damage is not None:  # which names the kernels use cannot be asked of half a table
            self._keep_names_of(strings, "")

    def _keep_names_of(self, strings: Table, where: str) -> None:
        names = self._database.rows(f"SELECT t.id, substr(t.value, 1, 4096) FROM {strings.quoted} t {where}")
        kept = [(key, name) for key, name in names if isinstance(name, str) and is_communication(name)]
        self._database.keep("communication", kept)

    def _copies(self) -> Iterator[DeviceOperation]:
        table = self._database.table(COPIES)
        if table is None or table.missing("start", "end", "deviceId", "copyKind"):
            return
        between = f't."copyKind" = {_PEER_TO_PEER} OR {table.column("srcDeviceId")} <> {table.column("dstDeviceId")}'
        rows = self._database.rows(
            f"SELECT t.rowid, CASE WHEN {between} THEN 'Memcpy PtoP' ELSE 'Memcpy DtoD' END, {_device_columns(table)}"
            f' FROM {table.quoted} t WHERE t."copyKind" = {_DEVICE_TO_DEVICE} OR {between}'
        )
        yield from self._operations(OperationKind.COPY, rows)

    def _operations(self, kind: OperationKind, rows: Iterator[tuple[Any, ...]]) -> Iterator[DeviceOperation]:
        for rowid, name, start, end, global_pid, device, stream, correlation, graph_node in rows:
            self._skips.seen()
            problem = _bad_times(start, end, shortest=1) or (None if int64(device) is not None else "no device")
            if problem is not None:
                self._skips.skip(_offset(rowid), f"a {kind.value} with {problem}")
                continue
            yield DeviceOperation(
                kind=kind,
                name=printable(name),
                start_ns=start,
                end_ns=end,
                process=self._process(global_pid),
                device=device,
                stream=int64(stream) or 0,
                correlation=int64(correlation),
                in_graph=graph_node is not None,
            )

    def _graph_launches(self) -> Iterator[GraphLaunch]:
        table = self._database.table(GRAPHS)
        if table is None or table.missing("start", "end", "deviceId"):
            return
        rows = self._database.rows(
            f'SELECT t.rowid, t."start", t."end", {table.column("globalPid")}, t."deviceId",'
            f" {table.column('correlationId')} FROM {table.quoted} t"
        )
        for rowid, start, end, global_pid, device, correlation in rows:
            self._skips.seen()
            problem = _bad_times(start, end, shortest=0) or (None if int64(device) is not None else "no device")
            if problem is not None:
                self._skips.skip(_offset(rowid), f"a graph launch with {problem}")
                continue
            yield GraphLaunch(
                process=self._process(global_pid),
                device=device,
                correlation=int64(correlation),
                start_ns=start,
                end_ns=end,
            )

    def _process(self, global_id: object) -> int | None:
        number = int64(global_id)
        return None if number is None else self._processes.of(number)

    # -- what the host did -----------------------------------------------------------------------------------------

    def _keep(self, started: tuple[DeviceOperation | GraphLaunch, ...]) -> None:
        """Of the millions of calls only those that started something kept are wanted."""
        self._database.keep(
            "wanted",
            {
                (one.correlation, None if one.process is None else self._processes.shifted_id(one.process))
                for one in started
                if one.correlation is not None
            },
        )

    def _launches(self) -> Iterator[Launch]:
        table, strings = self._database.table(CALLS), self._database.table(STRINGS)
        if table is None or table.missing("start", "end", "globalTid", "correlationId"):
            message = "the export has no CUDA API calls: which range launched a kernel cannot be told; " + _CAPTURE
            self._limit(LimitCode.NO_LAUNCHES, message)
            return
        name, join = "NULL", ""
        if strings is not None and "nameId" in table.columns:
            name, join = "substr(s.value, 1, 4096)", f'LEFT JOIN {strings.quoted} s ON s.id = t."nameId"'
        rows = self._database.rows(
            f'SELECT t.rowid, t."start", t."end", t."globalTid", t."correlationId", {name}'
            f" FROM {table.quoted} t {join} WHERE EXISTS (SELECT 1 FROM temp.wanted w"
            ' WHERE w.correlation = t."correlationId"'
            ' AND (w.process IS NULL OR w.process = (t."globalTid" >> 24)))'
        )
        for rowid, start, end, global_tid, correlation, api in rows:
            self._skips.seen()
            process, thread = self._process(global_tid), int64(global_tid)
            problem = _bad_times(start, end, shortest=0)
            if problem is not None or process is None or thread is None:
                self._skips.skip(_offset(rowid), f"a call of the CUDA API with {problem or 'no thread'}")
                continue
            yield Launch(
                process=process,
                thread=thread & 0xFFFFFF,
                start_ns=start,
                end_ns=end,
                correlation=correlation,
                api=printable(api) if isinstance(api, str) else "",
            )

    def _ranges(self) -> list[NvtxRange]:
        table = self._database.table(RANGES)
        if table is None or table.missing("start", "end", "eventType", "globalTid"):
            message = (
                "the export has no NVTX ranges: which part of the program launched a kernel cannot be told; mark it "
                "(torch.cuda.nvtx.range, nvtx.annotate) and " + _CAPTURE
            )
            self._limit(LimitCode.NO_RANGES, message)
            return []
        return list(read_ranges(self._database, table, self._processes, self._skips))

    # -- what cannot be told ---------------------------------------------------------------------------------------

    def _limit(self, code: LimitCode, message: str) -> None:
        self._limits.append(Limit(code=code, message=message))

    def _limit_graphs(self, graph_launches: tuple[GraphLaunch, ...]) -> None:
        if graph_launches:
            message = (
                f"{len(graph_launches):,} graph launches not expanded: which kernels they ran is not in the capture; "
                "capture again with --cuda-graph-trace=node"
            )
            self._limit(LimitCode.GRAPHS_NOT_EXPANDED, message)

    def _limit_damage(self, path: Path) -> None:
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            message = f"{log.name} beside it is not read: the export is still being written, or was not closed"
            self._limit(LimitCode.TRUNCATED, message)
        if self._database.damage is not None:
            message = f"the database is damaged ({self._database.damage}): rows are missing; export the report again"
            self._limit(LimitCode.TRUNCATED, message)

    def _origin(self) -> Origin:
        export = self._words("META_DATA_EXPORT", "EXPORT_%")
        product, version = export.get("EXPORT_PRODUCT_NAME"), export.get("EXPORT_PRODUCT_VERSION")
        schema = export.get("EXPORT_SCHEMA_VERSION")
        tool = " ".join(word for word in (product, version, schema and f"schema {schema}") if word)
        variables = self._words("META_DATA_CAPTURE", "PROCESS_%:ENVIRONMENT_VARIABLE", by_value=True)
        return Origin(
            rank=_number(variables.get("RANK")),
            world_size=_number(variables.get("WORLD_SIZE")),
            tool=tool or "Nsight Systems",
        )

    def _words(self, table: str, pattern: str, *, by_value: bool = False) -> dict[str, str]:
        """Pairs of a table of names and values; `by_value` where each value holds a pair of its own, `NAME="value"`.

        Under `by_value` a name that has several values, as RANK has with several processes, is left out.
        """
        there = self._database.table(table)
        if there is None or there.missing("name", "value"):
            return {}
        found: dict[str, set[str]] = {}
        for name, value in self._database.rows(
            f"SELECT t.name, substr(t.value, 1, 4096) FROM {there.quoted} t WHERE t.name LIKE ?", pattern
        ):
            if isinstance(name, str) and isinstance(value, str):
                key, _, word = value.partition("=") if by_value else (name, "", value)
                found.setdefault(key, set()).add(printable(word.strip('"')))
        return {key: words.pop() for key, words in found.items() if len(words) == 1}


def _device_columns(table: Table) -> str:
    names = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "graphNodeId")
    return ", ".join(map(table.column, names))


def _bad_times(start: object, end: object, *, shortest: int) -> str | None:
    """What is wrong with a start and an end; None where nothing is."""
    first, last = int64(start), int64(end)
    if first is None or last is None:
        return "no start or no end"
    return None if last - first >= shortest else f"a duration of {last - first} ns"


def _offset(rowid: object) -> int:
    return int64(rowid) or 0


def _number(word: str | None) -> int | None:
    return int(word) if word is not None and re.fullmatch(r"[0-9]{1,9}", word) else None
