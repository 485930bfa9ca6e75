"""Ranks on this host: one fork server, a deadline, the first failure ends all, and nothing stays behind."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rsag.errors import RunFailedError, UsageError
from rsag.launch.cause import find_cause
from rsag.launch.connection import Connection
from rsag.launch.group import GRACE_S, TERM_S
from rsag.launch.messages import GroupEnd, Outcome, RankDeath, RankNotStarted, RankStart, RunCommand
from rsag.launch.report import LaunchReport

OnEvent = Callable[[RankStart | RankDeath], None]

STORE_VARIABLE = "RSAG_STORE"
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_MARGIN_S = 10.0  # beyond all its own limits until a fork server counts as stuck


def run_ranks(
    *,
    entry: str,
    arguments: Sequence[str],
    world_size: int,
    out: Path,
    deadline_s: float,
    environment: Mapping[str, str],
    preload: Sequence[str] = (),
    on_event: OnEvent | None = None,
) -> LaunchReport:
    """Runs one group of ranks from a fork server of its own; see `ForkServer` and `ForkServer.run`."""
    _check(entry=entry, world_size=world_size, deadline_s=deadline_s)
    with ForkServer(out=out, environment=environment, preload=preload) as server:
        return server.run(
            entry=entry, arguments=arguments, world_size=world_size, out=out, deadline_s=deadline_s, on_event=on_event
        )


class ForkServer:
    """Runs groups of ranks on this host, one after another, and pays for the imports of `preload` once.

    A context manager. `environment` is all that fork server and ranks see of the environment. Standard error of the
    fork server is `out/launch.log`. Whatever ends this process, SIGKILL included, ends fork server and ranks too and
    removes their store. Raises `RunFailedError` on entry if the imports fail or outlast `preload_deadline_s`.
    """

    def __init__(
        self,
        *,
        out: Path,
        environment: Mapping[str, str],
        preload: Sequence[str] = (),
        preload_deadline_s: float = 300.0,
    ) -> None:
        self._log = out / "launch.log"
        self._environment = dict(environment)
        self._preload = list(preload)
        self._preload_deadline_s = preload_deadline_s
        self._num_runs = 0
        self._scratch: str | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> ForkServer:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._scratch = tempfile.mkdtemp(prefix="rsag-")
            self._connection = Connection(
                preload=self._preload, scratch=self._scratch, environment=self._environment, log=self._log
            )
            doing = f"importing {', '.join(self._preload) or 'nothing'}"
            self._connection.await_ready(limit_s=self._preload_deadline_s, doing=doing)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what still runs and removes the stores; may be called again."""
        connection, self._connection = self._connection, None
        scratch, self._scratch = self._scratch, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)

    def run(
        self,
        *,
        entry: str,
        arguments: Sequence[str],
        world_size: int,
        out: Path,
        deadline_s: float,
        environment: Mapping[str, str] | None = None,
        on_event: OnEvent | None = None,
    ) -> LaunchReport:
        """Runs `entry`, "package.module:function", in `world_size` ranks and returns when all have ended.

        The function gets `arguments` as one list and returns an exit code, or None for 0. Rank N writes to
        `out/rank-NNNN.log` and sees RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and RSAG_STORE, the path of a fresh
        file store. `environment`, if given, replaces that of the fork server in the ranks; what a library reads when it
        is loaded (OMP_NUM_THREADS) belongs to the fork server. Gloo and NCCL are bound to the loopback interface.

        The first rank to fail ends the others within 5 s, and `deadline_s` ends all: the report tells, nothing is
        raised. Raises `UsageError` for an impossible request, `RunFailedError` if a rank cannot be forked or the fork
        server dies. Any exception after the start, KeyboardInterrupt included, closes the fork server.
        """
        _check(entry=entry, world_size=world_size, deadline_s=deadline_s)
        if self._connection is None or self._scratch is None:
            raise UsageError("the fork server is not running", do="call `run` inside `with ForkServer(...)`")
        out.mkdir(parents=True, exist_ok=True)
        self._num_runs += 1
        command = RunCommand(
            entry=entry,
            arguments=list(arguments),
            world_size=world_size,
            out=str(out.absolute()),
            deadline_s=deadline_s,
            environment={
                **(self._environment if environment is None else environment),
                # Fresh in every run: in a file store that was used before, the ranks would meet those of the last run.
                STORE_VARIABLE: str(Path(self._scratch) / f"store-{self._num_runs:04d}"),
                # The caller's shell may name an interface of another host, and Gloo then complains of something else.
                "GLOO_SOCKET_IFNAME": _LOOPBACK,
                "NCCL_SOCKET_IFNAME": _LOOPBACK,
            },
        )
        start_ns = time.monotonic_ns()
        try:
            outcome, deaths = _follow(self._connection, command, on_event)
        except BaseException:
            self.close()
            raise
        cause = find_cause(deaths, since_ns=start_ns)
        return LaunchReport(world_size=world_size, deadline_s=deadline_s, outcome=outcome, deaths=deaths, cause=cause)


def _check(*, entry: str, world_size: int, deadline_s: float) -> None:
    if world_size < 1:
        raise UsageError("no ranks to run", got=f"world size {world_size}", expected="at least 1")
    if not deadline_s > 0:
        raise UsageError("no time to run ranks in", got=f"a deadline of {deadline_s} s", expected="more than 0 s")
    if not re.fullmatch(r"[\w.]+:\w+", entry):
        raise UsageError("not the name of a function", got=repr(entry), expected="package.module:function")


def _follow(
    connection: Connection, command: RunCommand, on_event: OnEvent | None
) -> tuple[Outcome, tuple[RankDeath, ...]]:
    connection.send(command)
    limit_s = command.deadline_s + GRACE_S + TERM_S + _MARGIN_S
    deaths: list[RankDeath] = []
    for message in connection.messages(limit_s=limit_s, doing=f"running {command.world_size} ranks"):
        if isinstance(message, RankDeath):
            deaths.append(message)
        if isinstance(message, (RankStart, RankDeath)) and on_event is not None:
            on_event(message)
        if isinstance(message, RankNotStarted):
            raise RunFailedError(
                f"rank {message.rank} of {command.world_size} could not be started",
                got=message.reason,
                do="run fewer ranks, or raise the limit on processes (ulimit -u; in a container, its limit on pids)",
            )
        if isinstance(message, GroupEnd):
            return message.outcome, tuple(deaths)
    raise AssertionError("a connection that ends raises")
