"""protocols.json: what NCCL's own log says it chose for each arm, in a pass that is not timed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from rsag.records.latency import Buffers

_TUNING = re.compile(
    r"(?P<function>\w+): (?P<bytes>\d+) Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
    r" channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One call as NCCL planned it. `bytes` is NCCL's own: of ReduceScatter and AllGather one rank's shard."""

    function: str
    bytes: int
    algorithm: str
    protocol: str
    channels: int

    @classmethod
    def parse(cls, line: str) -> Choice | None:
        """From a line of NCCL_DEBUG_SUBSYS=TUNING as NCCL 2.24 to 2.30 write it; None for any other line."""
        found = _TUNING.search(line)
        if found is None:
            return None
        return cls(
            function=found["function"],
            bytes=int(found["bytes"]),
            algorithm=found["algorithm"],
            protocol=found["protocol"],
            channels=int(found["high"]) - int(found["low"]) + 1,
        )

    def __str__(self) -> str:
        return f"{self.function} {self.algorithm} {self.protocol} x{self.channels}"


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

    rows: tuple[ProtocolRow, ...]

    def of(self, payload: int, arm: _Arm) -> tuple[Choice, ...]:
        """What was chosen for this arm, or nothing where it was not looked at."""
        asked = (payload, arm.composition, arm.buffers)
        return next((row.choices for row in self.rows if (row.bytes, row.composition, row.buffers) == asked), ())
