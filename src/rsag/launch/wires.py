"""The fork server's end of the pipes, and the signals it listens to."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from types import FrameType

from rsag.launch.messages import Message, MessageReader, RunCommand, encode


class Wires:
    """Commands in, events out; `closed` once the launcher is gone or somebody asked the fork server to end.

    Takes standard input and output for itself: what preloaded modules print goes to standard error, and a rank that
    reads its input finds it empty. Single-threaded on purpose, for a process with threads must not fork.
    """

    def __init__(self) -> None:
        self._commands = MessageReader(os.dup(0))
        self._events = os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._wake, self._wake_write = os.pipe()
        # Only the fork server holds the write end, so that ranks can tell that it has ended.
        self.lifeline, self._lifeline_write = os.pipe()
        self._pending: deque[RunCommand] = deque()
        self.closed = False

    def listen_to_signals(self) -> None:
        """From now on the death of a child ends `wait`, and SIGTERM or SIGINT closes the wires."""
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._close)

    def _close(self, _number: int, _frame: FrameType | None) -> None:
        self.closed = True

    def next_command(self) -> RunCommand | None:
        """The next command, or None when the wires are closed."""
        while not self.closed and not self._pending:
            self.wait(None)
        return None if self.closed else self._pending.popleft()

    def wait(self, until_s: float | None) -> None:
        """Returns at `until_s` on the monotonic clock, or when a child dies, a command comes or the wires close."""
        timeout = None if until_s is None else max(0.0, until_s - time.monotonic())
        sources = [self._wake] if self.closed else [self._wake, self._commands.fd]
        readable, _, _ = select.select(sources, [], [], timeout)
        if self._wake in readable:
            os.read(self._wake, 1 << 12)
        if self._commands.fd in readable:
            self._pending.extend(message for message in self._commands.read() if isinstance(message, RunCommand))
            self.closed |= self._commands.closed

    def send(self, event: Message) -> None:
        """Tells the launcher, if there still is one."""
        line = encode(event)
        try:
            while line and not self.closed:
                line = line[os.write(self._events, line) :]
        except BrokenPipeError:
            self.closed = True

    def abandon(self) -> None:
        """Undoes all this, save `lifeline`, in a freshly forked rank; signals are as a new interpreter has them."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for fd in (self._commands.fd, self._events, self._wake, self._wake_write, self._lifeline_write):
            os.close(fd)
