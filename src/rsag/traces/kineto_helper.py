"""A second process for large traces: it reads some of the blocks while the first reads the others.

The first one cuts the file, and hands a whole block over whenever the pipe between them has room for it. Rows come back
when the file has ended.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import IO, BinaryIO

from rsag.errors import RunFailedError, UsageError
from rsag.traces.blocks import EventReader
from rsag.traces.kineto_rows import Rows, rows_of
from rsag.traces.skips import Skips

try:
    import fcntl
    import termios
except ImportError:  # Windows
    _CAN_ASK_PIPES = False
else:
    _CAN_ASK_PIPES = hasattr(fcntl, "F_SETPIPE_SZ") and hasattr(termios, "FIONREAD")

_WORTH_IT_BYTES = 64 << 20  # starting it takes about as long as reading 20 MiB
_PIPE_BYTES = 1 << 20  # room for two blocks; the most that Linux allows without privileges
_HEADER = struct.Struct("=QQ")  # offset and length of the block that follows


class Helper(AbstractContextManager["Helper"]):
    """Takes blocks once a file has turned out to be large; where pipes can be asked for their room, as on Linux.

    Leaving the context ends the process, whatever happened.
    """

    def __init__(self, worth_it_bytes: int = _WORTH_IT_BYTES) -> None:
        self._worth_it_bytes = worth_it_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._room_bytes = 0

    def offer(self, offset: int, body: bytes) -> bool:
        """Whether the process takes this block: not while it is busy, nor in a small file, nor on a single core."""
        if offset < self._worth_it_bytes or not _CAN_ASK_PIPES or _num_cores() < 2:
            return False
        process = self._process or self._start()
        if process.stdin is None or self._room_bytes - _num_unread(process.stdin) < _HEADER.size + len(body):
            return False
        try:
            process.stdin.write(_HEADER.pack(offset, len(body)) + body)
            process.stdin.flush()
        except OSError:
            raise _died(process) from None
        return True

    def finish(self, skips: Skips) -> list[Rows]:
        """The rows of all blocks that were taken; what was skipped in them is added to `skips`."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return []
        parts: list[Rows] = []
        try:
            self._process.stdin.close()
            while isinstance(answer := pickle.load(self._process.stdout), Rows):
                parts.append(answer)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise _died(self._process) from None
        skips.add(answer)
        return parts

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._process.stdin is not None:
            try:
                self._room_bytes = fcntl.fcntl(self._process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            except OSError:  # all pipes of this user are as large as they may be: no block fits, and all is read here
                self._room_bytes = 0
        return self._process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        self._process.kill()
        with suppress(BrokenPipeError), self._process:
            pass


def _num_cores() -> int:
    """Those that this process may use, where the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _num_unread(pipe: IO[bytes]) -> int:
    count = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


def _died(process: subprocess.Popen[bytes]) -> RunFailedError:
    process.kill()
    return RunFailedError(
        "the second process that reads this trace has failed",
        got=f"exit code {process.wait()}",
        do="free some memory, or read on one core (taskset -c 0), where there is no second process",
    )


def _received(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while header := source.read(_HEADER.size):
        offset, length = _HEADER.unpack(header)
        yield offset, source.read(length)


def main() -> None:
    """The second process: blocks on standard input; rows, then what was skipped, on standard output."""
    skips = Skips()
    reader = EventReader(skips)
    answers = []  # pickled at once, since that takes less memory
    for offset, body in _received(sys.stdin.buffer):
        answers.append(pickle.dumps(rows_of(reader.lone_block(offset, body), skips)))
    for answer in answers:
        sys.stdout.buffer.write(answer)
    pickle.dump(skips, sys.stdout.buffer)


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:  # the first process says that its part of the file could not be read
        sys.exit(str(error))
