"""What launcher and fork server say to each other: one JSON object a line, `{"RankStart": {"rank": 0, "pid": 47}}`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path


class Outcome(Enum):
    """How a group of ranks ended."""

    OK = "ok"
    RANK_DIED = "rank-died"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """One group of ranks to run; `environment` is complete but for what differs between ranks."""

    entry: str
    arguments: list[str]
    world_size: int
    out: str
    deadline_s: float
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The fork server has imported what it was told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """A rank was forked."""

    rank: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNotStarted:
    """A rank could not be forked; those forked before it were ended again."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDeath:
    """A rank ended: with an exit code or by a signal, never both.

    `at_ns` is `time.monotonic_ns()` when it was reaped, `signalled_at_ns` the same clock when the launcher began to end
    it, None if it ended by itself. Of the log, what follows the first `log_bytes` was printed because of our signal.
    `core_cut` means that it was dumping core, for which the time was not enough; `signal` then is our SIGKILL.
    """

    rank: int
    pid: int
    exit_code: int | None
    signal: int | None
    at_ns: int
    signalled_at_ns: int | None
    log: Path
    log_bytes: int
    core_cut: bool

    @property
    def failed(self) -> bool:
        return self.exit_code != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnd:
    """All ranks of the group are reaped and what they left behind is removed."""

    outcome: Outcome


Message = RunCommand | Ready | RankStart | RankNotStarted | RankDeath | GroupEnd
_KINDS = {kind.__name__: kind for kind in (RunCommand, Ready, RankStart, RankNotStarted, RankDeath, GroupEnd)}


def encode(message: Message) -> bytes:
    """`message` as one line, newline included."""
    fields = {name: _plain(value) for name, value in asdict(message).items()}
    return json.dumps({type(message).__name__: fields}).encode() + b"\n"


def _plain(value: object) -> object:
    match value:
        case Path():
            return str(value)
        case Outcome():
            return value.value
        case _:
            return value


def decode(line: bytes) -> Message:
    """The message that `encode` made `line` from."""
    [(kind, fields)] = json.loads(line).items()
    if "log" in fields:
        fields["log"] = Path(fields["log"])
    if "outcome" in fields:
        fields["outcome"] = Outcome(fields["outcome"])
    message: Message = _KINDS[kind](**fields)
    return message


class MessageReader:
    """Messages from a pipe; `closed` once its other end is gone."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed = False
        self._partial = b""

    def read(self) -> list[Message]:
        """What one `read` of the pipe completes; blocks only while the pipe is empty and open."""
        chunk = os.read(self.fd, 1 << 16)
        self.closed = not chunk
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [decode(line) for line in lines]
