"""How a freshly forked process becomes a rank."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

from rsag.launch.messages import RunCommand
from rsag.launch.wires import Wires

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def log_path(out: str, rank: int) -> Path:
    """Where `rank` writes its standard output and error."""
    return Path(out) / f"rank-{rank:04d}.log"


def become_rank(command: RunCommand, wires: Wires, *, rank: int, parent: int) -> NoReturn:
    """Runs the entry of `command` as `rank` and ends the process with what it returns; 1 if it raises."""
    exit_code = 1
    try:
        wires.abandon()
        die_with(parent, lifeline=wires.lifeline)
        _redirect_output(log_path(command.out, rank))
        _set_environment(command, rank)
        exit_code = _call(command)
    except SystemExit as end:
        exit_code = _exit_code(end.code)
    except BaseException:  # noqa: BLE001  (the outermost edge of a rank)
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Not sys.exit: the stack above belongs to the fork server, and so do its exit handlers.
            os._exit(exit_code)


def die_with(parent: int, *, lifeline: int) -> None:
    """From now on this process is killed when `parent` ends, which holds the only write end of the pipe `lifeline`."""
    if not (_kill_on_parent_death() and os.getppid() == parent):
        threading.Thread(target=_die_at_end_of, args=(lifeline,), daemon=True).start()


def _kill_on_parent_death() -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def _die_at_end_of(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _redirect_output(log: Path) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        # A block-buffered line would die with a rank that is killed.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(file=2)
    # SIGTERM prints where every thread stands and then ends the rank as ever: a hang explains itself in its log.
    faulthandler.register(signal.SIGTERM, file=2, chain=True)


def _set_environment(command: RunCommand, rank: int) -> None:
    os.environ.clear()
    os.environ.update(command.environment)
    for prefix in ("", "LOCAL_"):
        os.environ[f"{prefix}RANK"] = str(rank)
        os.environ[f"{prefix}WORLD_SIZE"] = str(command.world_size)


def _call(command: RunCommand) -> int:
    sys.argv = [command.entry, *command.arguments]
    module, function = command.entry.split(":")
    return _exit_code(getattr(importlib.import_module(module), function)(list(command.arguments)))


def _exit_code(result: object) -> int:
    """As `sys.exit` reads it; a number that would wrap round, perhaps to 0, counts as 1."""
    if result is None:
        return 0
    if isinstance(result, int):
        return int(result) if 0 <= result <= 255 else 1
    print(result, file=sys.stderr)  # noqa: T201  (what sys.exit does with a text)
    return 1
