"""`rsag` as people run it, in processes of its own, and plans that are quickly done."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launching import listening_ports, wait_until
from rsag.launch.leftovers import held_by
from rsag.plan import make_plan
from rsag.records.plan import Backend, Experiment, Plan, Planted
from rsag.records.rundir import rank_files
from rsag.reduction import DType, ReduceOp

# A job in the background has Ctrl-C ignored; what is tested here is one in the foreground.
RSAG = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from rsag.cli import main; main()",
]


def lean_plan(world_size: int, *, planted: tuple[Planted, ...] = tuple(Planted)) -> Plan:
    """The contracts, at few sizes, operators and dtypes."""
    plan = make_plan(
        world_size=world_size, backend=Backend.GLOO, experiments=(Experiment.CONTRACTS,), deadline_s=60, planted=planted
    )
    lean = dataclasses.replace(
        plan.contracts, sizes=(0, 5), ops=(ReduceOp.SUM, ReduceOp.MAX), dtypes=(DType.INT64, DType.INT16)
    )
    return dataclasses.replace(plan, contracts=lean)


def environment_of(tmp_path: Path) -> dict[str, str]:
    """An environment in which stores end up below `tmp_path`."""
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100"}


def rsag(tmp_path: Path, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """One command in `tmp_path`, to its end."""
    return subprocess.run(
        [*RSAG, *words],
        cwd=tmp_path,
        env=environment_of(tmp_path),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


@dataclasses.dataclass(slots=True, kw_only=True)
class Started:
    """A run that is under way in `out`: its process, and what its ranks hold that must be gone in the end."""

    process: subprocess.Popen[str]
    out: Path
    pids: dict[int, int]
    session: int
    ports: set[int]
    shared_memory: set[Path]

    def ends(self, *, within_s: float) -> tuple[int, str]:
        """Exit code and standard error."""
        _, stderr = self.process.communicate(timeout=within_s)
        return self.process.returncode, stderr


@contextmanager
def started(tmp_path: Path, *words: str, world_size: int = 3) -> Iterator[Started]:
    """`rsag run` of the contracts, from when every rank has begun to record; killed at the end of the block."""
    out = tmp_path / "run"
    with subprocess.Popen(
        [*RSAG, "run", "--only", "contracts", "-n", str(world_size), "--backend", "gloo", "--out", str(out), *words],
        cwd=tmp_path,
        env=environment_of(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            wait_until(lambda: process.poll() is not None or len(first_lines(out)) == world_size, limit_s=60)
            assert process.poll() is None, process.communicate()[1]
            pids = {rank: int(line["pid"]) for rank, line in first_lines(out).items()}
            yield Started(
                process=process,
                out=out,
                pids=pids,
                session=os.getsid(pids[0]),
                ports={port for pid in pids.values() for port in listening_ports(pid)},
                shared_memory={path for pid in pids.values() for path in held_by(pid)},
            )
        finally:
            process.kill()


def first_lines(out: Path) -> dict[int, Mapping[str, Any]]:
    """What each rank of a run under way has said of itself."""
    if not out.is_dir():
        return {}
    return {rank: json.loads(path.read_bytes().splitlines()[0]) for rank, path in rank_files(out)}


def interrupt(run: Started) -> None:
    """As Ctrl-C in the terminal does: to the whole process group in the foreground."""
    os.killpg(run.process.pid, signal.SIGINT)


def rows_of(document: Mapping[str, Any], keep: Callable[[str], bool] = lambda _: True) -> list[Mapping[str, Any]]:
    return [row for row in document["contracts"] if keep(row["contract"])]
