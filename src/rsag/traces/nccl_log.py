"""NCCL's own log: what it was asked for (COLL) and what it chose (TUNING).

From NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING, NCCL 2.20 to 2.30; INFO lines of src/enqueue.cc and init.cc.
COLL lines come from every rank, TUNING lines from rank 0 of each communicator.
"""

from __future__ import annotations

import re
from pathlib import Path

from rsag.collectives import COLLECTIVES, Kind
from rsag.records.protocol import Choice
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

_LINE = re.compile(r"\b(?P<process>\d{1,10}):(?P<thread>\d{1,10}) \[-?\d+\] NCCL INFO (?P<message>.*)")
_VERSION = re.compile(r"NCCL version (?P<version>[\w.+-]{1,64})")
_INIT = re.compile(r"\bcomm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,9}) n[rR]anks (?P<num_ranks>\d{1,9})\b")
_CALL = re.compile(
    r"(?P<name>\w+): opCount (?P<sequence>[0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ count (?P<count>\d{1,20}) "
    r"datatype (?P<dtype>\w+) op (?P<op>\w+) root -?\d+ comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<num_ranks>\d{1,9})"
)

# ncclDataType_t and ncclRedOp_t, nccl.h; operators beyond the list are made by ncclRedOpCreatePreMulSum.
_DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
)
_OPERATORS = ("sum", "product", "max", "min", "avg")
_KINDS = {
    "AllReduce": Kind.ALL_REDUCE,
    "ReduceScatter": Kind.REDUCE_SCATTER,
    "AllGather": Kind.ALL_GATHER,
    "Broadcast": Kind.BROADCAST,
    "Reduce": Kind.REDUCE,
}


def sniff(head: bytes, _path: Path) -> bool:
    """Whether this is a log with lines of NCCL in it."""
    return b"NCCL INFO" in head


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
        found = _CALL.search(message)
        if found is None:
            return None
        count, num_ranks = int64(int(found["count"])), int(found["num_ranks"])
        if count is None:
            return None
        kind = _KINDS.get(found["name"])
        collective = COLLECTIVES[kind] if kind else None
        return Call(
            source=CallSource.LIBRARY,
            metadata=Metadata(
                collective=found["name"],
                in_numel=collective.send_numel(count, num_ranks) if collective else count,
                out_numel=collective.recv_numel(count, num_ranks) if collective else count,
                dtype=_named(found["dtype"], _DTYPES),
                op=_named(found["op"], _OPERATORS, beyond="premul_sum") if collective and collective.reduces else None,
                group=found["comm"],
                group_size=num_ranks,
                sequence=int(found["sequence"], 16),
            ),
            process=process,
            thread=thread,
            start_ns=None,
            end_ns=None,
            rank=self.ranks.get((process, found["comm"])),
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


def _named(word: str, names: tuple[str, ...], *, beyond: str | None = None) -> str:
    """NCCL's numbers by name; other words as they are."""
    if not (word.isascii() and word.isdecimal() and len(word) < 10):
        return word
    return names[int(word)] if int(word) < len(names) else beyond or word
