"""The launcher's end of the pipes to a fork server, and the life of that process."""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rsag.errors import RunFailedError
from rsag.launch.leftovers import kill_session
from rsag.launch.messages import Message, MessageReader, Ready, encode
from rsag.launch.report import log_excerpt, signal_name
from rsag.units import format_seconds

_PATIENCE_S = (
    4.0  # for the fork server to end its ranks and itself; more than it leaves them between SIGTERM and SIGKILL
)

# The fork server finds the modules that this process finds. Not `-m`: that would put the current directory first, where
# a user's own torch.py or json.py may lie.
_BOOT = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import json
options = json.loads(sys.argv[1])
sys.path += [entry for entry in options.pop("path") if entry not in sys.path]
from rsag.launch.forkserver import main
main(**options)
"""


class Connection:
    """A running fork server: what it is told, what it answers, how it is ended."""

    def __init__(self, *, preload: Sequence[str], scratch: str, environment: Mapping[str, str], log: Path) -> None:
        options = {"path": [str(entry) for entry in sys.path], "preload": list(preload), "scratch": scratch}
        self._log = log
        with log.open("wb") as stderr:
            # A session of its own: Ctrl-C in the terminal reaches this process alone, which ends the ranks in order.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=dict(environment),
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._events = self._process.stdin, self._process.stdout
        self._reader = MessageReader(self._events.fileno())
        self._ready = False

    def await_ready(self, *, limit_s: float, doing: str) -> None:
        """Returns once the fork server can take commands; raises `RunFailedError` as `messages` does."""
        self._ready = any(isinstance(message, Ready) for message in self.messages(limit_s=limit_s, doing=doing))

    def send(self, message: Message) -> None:
        """Tells the fork server; one that has died says so in `messages`."""
        line = memoryview(encode(message))
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[self._commands.write(line) :]

    def messages(self, *, limit_s: float, doing: str) -> Iterator[Message]:
        """What the fork server says; raises `RunFailedError` if it dies, or when `limit_s` has passed."""
        until_s = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while selector.select(max(0.0, until_s - time.monotonic())):
                yield from self._reader.read()
                if self._reader.closed:
                    raise self._death(doing)
        got = f"no end of it after {format_seconds(limit_s)}"
        raise RunFailedError(f"the fork server is stuck while {doing}", got=got, do=log_excerpt(self._log))

    def _death(self, doing: str) -> RunFailedError:
        code = self._process.wait(_PATIENCE_S)
        got = f"exit code {code}" if code >= 0 else signal_name(-code)
        return RunFailedError(f"the fork server ended while {doing}", got=got, do=log_excerpt(self._log))

    def close(self) -> None:
        """Ends the fork server, which ends its ranks first; all of them are gone when this returns or raises."""
        try:
            self._commands.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # While it imports it does not listen, and has no ranks yet.
                self._process.wait(_PATIENCE_S if self._ready else 0)
        finally:
            if self._process.returncode != 0:
                # Stuck, killed, or a second Ctrl-C while we waited: it could not clear up itself.
                kill_session(self._process.pid)
                self._process.kill()
                self._process.wait()
            self._events.close()
