"""protocols.json: what NCCL's own log says it was asked for and chose, in a pass that is not timed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from rsag.records.execution import LoggedCount
from rsag.records.latency import Buffers

# 2.20 to 2.22 name neither function nor channels; up to 2.23 algorithm and protocol are numbers; then names, channels.
_TUNING = re.compile(
    r"(?:(?P<function>\w+): )?(?P<bytes>\d{1,19}) Bytes -> "
    r"Algo (?P<algorithm>\w{1,32}) proto (?P<protocol>\w{1,32})"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,9})\.\.(?P<high>\d{1,9})\}| time )"
)
_SYMMETRIC = re.compile(
    r"(?P<function>\w+) \[Symmetric\]: (?P<bytes>\d{1,19}) Bytes -> "
    r"Kernel (?P<kernel>\w+) nchannels (?P<channels>\d{1,9})\b"
)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One call as NCCL planned it. `bytes` is NCCL's own: of ReduceScatter and AllGather one rank's shard.

    A symmetric kernel has neither algorithm nor protocol. NCCL before 2.24 does not say the channels, before 2.23 not
    the function.
    """

    function: str | None
    bytes: int
    algorithm: str | None
    protocol: str | None
    channels: int | None
    symmetric_kernel: str | None = None

    @classmethod
    def parse(cls, line: str) -> Choice | None:
        """From a line of NCCL_DEBUG_SUBSYS=TUNING as NCCL 2.20 to 2.30 write it; None for any other line."""
        found = _TUNING.search(line)
        if found is not None:
            return cls(
                function=found["function"],
                bytes=int(found["bytes"]),
                algorithm=_named(found["algorithm"], _ALGORITHMS),
                protocol=_named(found["protocol"], _PROTOCOLS),
                channels=int(found["high"]) - int(found["low"]) + 1 if found["high"] else None,
            )
        found = _SYMMETRIC.search(line)
        if found is not None:
            return cls(
                function=found["function"],
                bytes=int(found["bytes"]),
                algorithm=None,
                protocol=None,
                channels=int(found["channels"]),
                symmetric_kernel=found["kernel"],
            )
        return None

    @property
    def how(self) -> tuple[str, ...]:
        """Algorithm and protocol, or the symmetric kernel: two calls with the same ran in the same way."""
        return tuple(word for word in (self.algorithm, self.protocol, self.symmetric_kernel) if word is not None)

    def __str__(self) -> str:
        channels = () if self.channels is None else (f"x{self.channels}",)
        return " ".join((self.function or "a call", *self.how, *channels))


def _named(word: str, names: tuple[str, ...]) -> str:
    """NCCL's numbers by name; a number beyond those known, and a name, as they are."""
    return names[int(word)] if word.isascii() and word.isdecimal() and int(word) < len(names) else word


_CALL = re.compile(
    r"(?P<function>\w+): opCount (?P<sequence>[0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ count (?P<count>\d{1,20}) "
    r"datatype (?P<dtype>\w+) op (?P<op>\w+) root -?\d+ comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<num_ranks>\d{1,9})"
)
# ncclDataType_t and ncclRedOp_t (nccl.h); operators beyond these are made by ncclRedOpCreatePreMulSum.
_DTYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"),
    *("float8_e4m3", "float8_e5m2"),
)
_OPERATORS = ("sum", "product", "max", "min", "avg")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One call of NCCL's API as its log has it: `count` is the call's own argument, in elements of `dtype`."""

    function: str
    count: int
    dtype: str
    op: str
    communicator: str
    num_ranks: int
    sequence: int

    @classmethod
    def parse(cls, line: str) -> LoggedCall | None:
        """From a line of NCCL_DEBUG_SUBSYS=COLL as NCCL 2.20 to 2.30 write it; None for any other line."""
        found = _CALL.search(line)
        if found is None:
            return None
        op = _named(found["op"], _OPERATORS)
        return cls(
            function=found["function"],
            count=int(found["count"]),
            dtype=_named(found["dtype"], _DTYPES),
            op="premul_sum" if op.isdecimal() else op,
            communicator=found["comm"],
            num_ranks=int(found["num_ranks"]),
            sequence=int(found["sequence"], 16),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRow:
    """The choices for one call of one arm at one payload."""

    kind: Literal["protocol"] = "protocol"
    bytes: int
    composition: str
    buffers: Buffers = Buffers.PLAIN
    choices: tuple[Choice, ...]


class _Arm(Protocol):
    """A TimedArm, or a row about one."""

    @property
    def composition(self) -> str: ...
    @property
    def buffers(self) -> Buffers: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocols:
    schema: ClassVar[str] = "protocols"
    version: ClassVar[int] = 1

    world_size: int | None = None  # the earliest do not say
    rows: tuple[ProtocolRow, ...]
    counts: tuple[LoggedCount, ...] = ()

    def of(self, payload: int, arm: _Arm) -> tuple[Choice, ...]:
        """What was chosen for this arm, or nothing where it was not looked at."""
        asked = (payload, arm.composition, arm.buffers)
        return next((row.choices for row in self.rows if (row.bytes, row.composition, row.buffers) == asked), ())
