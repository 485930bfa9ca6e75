"""NCCL's own log: what it was asked for (COLL) and what it chose (TUNING).

From NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING, NCCL 2.20 to 2.30; INFO lines of src/enqueue.cc and init.cc.
COLL lines come from every rank, TUNING lines from rank 0 of each communicator.
"""

from __future__ import annotations

import re
from pathlib import Path

from rsag.collectives import COLLECTIVES, Kind
from rsag.records.protocol import Choice, LoggedCall
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
from rsag.traces.skips import Skips, int64, lines

_MARK = b"NCCL INFO"
_SHORT_FILE, _LONGEST_PREAMBLE = 64 << 10, 16 << 20

_LINE = re.compile(r"\b(?P<process>\d{1,10}):(?P<thread>\d{1,10}) \[-?\d+\] NCCL INFO (?P<message>.*)")
_VERSION = re.compile(r"NCCL version (?P<version>[\w.+-]{1,64})")
_INIT = re.compile(r"\bcomm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,9}) n[rR]anks (?P<num_ranks>\d{1,9})\b")
_KINDS = {
    "AllReduce": Kind.ALL_REDUCE,
    "ReduceScatter": Kind.REDUCE_SCATTER,
    "AllGather": Kind.ALL_GATHER,
    "Broadcast": Kind.BROADCAST,
    "Reduce": Kind.REDUCE,
}


def sniff(head: bytes, path: Path) -> bool:
    """Whether this is text with lines of NCCL in it; a program's own output may precede them by megabytes."""
    if _MARK in head or b"\0" in head or len(head) < _SHORT_FILE:
        return _MARK in head
    with path.open("rb") as file:
        return _MARK in file.read(_LONGEST_PREAMBLE)


def read(path: Path) -> Capture:
    """The calls and choices of all ranks that wrote into this log, in the order of its lines."""
    log = _Log()
    for offset, text in lines(path, log.skips):
        log.take(offset, text)
    return log.capture(path)


class _Log:
    def __init__(self) -> None:
        self.skips = Skips()
        self.calls: list[Call] = []
        self.choices: list[Choice] = []
        self.version: str | None = None
        # A communicator's address is unique within a process only.
        self.ranks: dict[tuple[int, str], int] = {}
        self.world_size: int | None = None

    def take(self, offset: int, text: str) -> None:
        found = _LINE.search(text)
        if found is None:
            return
        self.skips.seen()
        process, thread, message = int(found["process"]), int(found["thread"]), found["message"]
        if ": opCount " in message:
            call = self._call(process, thread, message)
            if call is None:
                self.skips.skip(offset, "a line of a call that is cut or of another form")
            else:
                self.calls.append(call)
        elif " Bytes -> " in message:
            choice = Choice.parse(message)
            if choice is None or int64(choice.bytes) is None:
                self.skips.skip(offset, "a line of a choice that is cut or of another form")
            else:
                self.choices.append(choice)
        elif (init := _INIT.search(message)) is not None:
            self.ranks[process, init["comm"]] = int(init["rank"])
            self.world_size = max(self.world_size or 0, int(init["num_ranks"]))
        elif (version := _VERSION.search(message)) is not None:
            self.version = self.version or version["version"]

    def _call(self, process: int, thread: int, message: str) -> Call | None:
        found = LoggedCall.parse(message)
        if found is None or int64(found.count) is None:
            return None
        kind = _KINDS.get(found.function)
        collective = COLLECTIVES[kind] if kind else None
        return Call(
            source=CallSource.LIBRARY,
            metadata=Metadata(
                collective=found.function,
                in_numel=collective.send_numel(found.count, found.num_ranks) if collective else found.count,
                out_numel=collective.recv_numel(found.count, found.num_ranks) if collective else found.count,
                dtype=found.dtype,
                op=found.op if collective and collective.reduces else None,
                group=found.communicator,
                group_size=found.num_ranks,
                sequence=found.sequence,
            ),
            process=process,
            thread=thread,
            start_ns=None,
            end_ns=None,
            rank=self.ranks.get((process, found.communicator)),
        )

    def capture(self, path: Path) -> Capture:
        ranks = set(self.ranks.values())
        return Capture(
            source=str(path),
            format=Format.NCCL_LOG,
            origin=Origin(
                rank=ranks.pop() if len(ranks) == 1 else None,
                world_size=self.world_size,
                backend="nccl",
                library_version=self.version,
            ),
            calls=tuple(self.calls),
            choices=tuple(self.choices),
            limits=self._limits(),
            quarantine=self.skips.quarantine(),
        )

    def _limits(self) -> tuple[Limit, ...]:
        again = "log again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING"
        limits = [
            Limit(
                code=LimitCode.NO_DEVICE_ROWS,
                message="a log has no kernels: it tells what was asked for and chosen; read a profile beside it",
            )
        ]
        if not self.calls:
            message = f"the log has no COLL lines: counts, dtypes and operators cannot be told; {again}"
            limits.append(Limit(code=LimitCode.NO_COUNTS, message=message))
        if not self.choices:
            message = f"the log has no TUNING lines: algorithm and protocol cannot be told; {again}, rank 0 included"
            limits.append(Limit(code=LimitCode.NO_CHOICES, message=message))
        return tuple(limits)
