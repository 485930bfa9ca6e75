"""What the ranks of the tests do. Imported in ranks only, by name."""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOREVER_S = 600.0


def rank() -> int:
    return int(os.environ["RANK"])


def hang(arguments: Sequence[str]) -> None:
    print("about to hang")
    time.sleep(FOREVER_S)


def show(arguments: Sequence[str]) -> None:
    """Prints the variables named."""
    print(" ".join(os.environ[name] for name in arguments))


def show_arguments(arguments: Sequence[str]) -> None:
    print(json.dumps(arguments))
    print("to standard error", file=sys.stderr)


def show_modules(arguments: Sequence[str]) -> None:
    """Prints which of the modules named were imported by the fork server, and the process that did."""
    print([name in sys.modules for name in arguments], os.getppid())


def give(arguments: Sequence[str]) -> int:
    """Rank N returns the Nth argument."""
    return int(arguments[rank()])


def leave(arguments: Sequence[str]) -> None:
    sys.exit(int(arguments[0]))


def fail_on(arguments: Sequence[str]) -> None:
    if rank() == int(arguments[0]):
        raise ValueError("no such luck")
    time.sleep(FOREVER_S)


def kill_itself_on(arguments: Sequence[str]) -> None:
    """The rank named says its last words and is gone; the others hang."""
    if rank() == int(arguments[0]):
        print("last words")
        os.kill(os.getpid(), signal.SIGKILL)
    hang(arguments)


def victim_before_culprit(arguments: Sequence[str]) -> None:
    """Rank 0 fails at once; rank 1, the culprit, aborts when rank 0 is gone."""
    out = Path(arguments[0])
    if rank() == 0:
        (out / "victim").write_text(str(os.getpid()))
        raise ConnectionResetError("Connection reset by peer")
    while not (out / "victim").exists() or _runs(int((out / "victim").read_text() or os.getpid())):
        time.sleep(0.01)
    os.abort()


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def slow_culprit(arguments: Sequence[str]) -> int:
    """Rank 1 records its failure and cannot end; rank 0 then fails because of it, and ends."""
    record = Path(arguments[0]) / "rank-0001.jsonl"
    if rank() == 1:
        record.write_text(json.dumps({"kind": "failed", "at_ns": time.monotonic_ns()}) + "\n")
        hang(arguments)
    while not record.exists() or not record.read_text():
        time.sleep(0.01)
    return 1


def ignore_sigterm(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fail_on(arguments)


def record_when_told(arguments: Sequence[str]) -> int:
    """Rank 0 fails; rank 1 needs half a second more to write its record and end well."""
    if rank() == 0:
        return 1
    time.sleep(0.5)
    (Path(arguments[0]) / "rank-0001.jsonl").write_text("{}\n")
    return 0


def fill_disk(arguments: Sequence[str]) -> None:
    """Rank 1 may not write files of more than 64 KiB, and does."""
    if rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        with open(Path(arguments[0]) / "samples", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
    time.sleep(FOREVER_S)


def leave_a_child(arguments: Sequence[str]) -> None:
    """Starts a process that outlives the rank."""
    child = subprocess.Popen(["sleep", str(FOREVER_S)])
    print(child.pid)


def plant(path: Path) -> mmap.mmap:
    """Makes a file in /dev/shm and keeps it mapped, but not open."""
    with path.open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        return mmap.mmap(file.fileno(), mmap.PAGESIZE)


def plant_and_hang(arguments: Sequence[str]) -> None:
    """Maps the file named, made if it is not there, and hangs."""
    _held = plant(Path(arguments[0]))
    hang(arguments)


def reduce_forever(arguments: Sequence[str]) -> None:
    """Real AllReduces over Gloo; `rank-NNNN.inside` in the directory named appears after the first, `plant`s before."""
    import torch
    import torch.distributed as dist

    out, shared = Path(arguments[0]), Path(arguments[1])
    _held = plant(shared / f"rsag-test-{os.getpid()}")
    store = dist.FileStore(os.environ["RSAG_STORE"], int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo", store=store, rank=rank(), world_size=int(os.environ["WORLD_SIZE"]))
    tensor = torch.zeros(1 << 20)
    while True:
        dist.all_reduce(tensor)
        (out / f"rank-{rank():04d}.inside").touch()


def abort_inside_all_reduce(arguments: Sequence[str]) -> None:
    """Rank 1 aborts while rank 0 waits for it in an AllReduce over Gloo."""
    import torch
    import torch.distributed as dist

    store = dist.FileStore(os.environ["RSAG_STORE"], 2)
    dist.init_process_group("gloo", store=store, rank=rank(), world_size=2)
    dist.all_reduce(torch.zeros(1))
    if rank() == 1:
        os.abort()
    dist.all_reduce(torch.zeros(1))
