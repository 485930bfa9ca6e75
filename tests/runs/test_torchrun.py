"""The same rank program under torchrun: the same rows, in rank 0's directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import lean_plan, rsag

from rsag.records.codec import dump_document, encode, load_document
from rsag.records.jsonl import read_rows
from rsag.records.plan import Plan
from rsag.records.run import Run
from rsag.records.rundir import PLAN, RUN, rank_file, rank_files

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(150)]

OWN_DIRECTORY = 'exec "$0" -m rsag.rank --plan plan.json --out "out-$RANK"'


def torchrun(tmp_path: Path, world_size: int, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
            f"--nproc-per-node={world_size}",
            *words,
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks that share no directory, as on four hosts."""
    home = tmp_path_factory.mktemp("torchrun")
    dump_document(lean_plan(4), home / PLAN)
    done = torchrun(home, 4, "--no-python", "sh", "-c", OWN_DIRECTORY, sys.executable)
    assert done.returncode == 0, done.stderr
    return home


def test_judge_gives_the_rows_of_the_local_launcher(apart: Path, lean_run: Any) -> None:
    judged = rsag(apart, "judge", "out-0", "--json")
    assert 0 == judged.returncode
    assert encode(lean_run(4).contracts) == json.loads(judged.stdout)["contracts"]


def test_the_rows_of_all_ranks_end_in_the_directory_of_rank_0(apart: Path) -> None:
    gathered = [path.read_bytes() for _, path in rank_files(apart / "out-0")]
    assert [rank_file(apart / f"out-{rank}", rank).read_bytes() for rank in range(4)] == gathered
    assert [[f"rank-000{rank}.jsonl"] for rank in (1, 2, 3)] == [
        [path.name for path in (apart / f"out-{rank}").iterdir()] for rank in (1, 2, 3)
    ]


def test_all_ranks_are_of_the_launch_that_rank_0_named(apart: Path) -> None:
    first = [read_rows(path).rows[0] for _, path in rank_files(apart / "out-0")]
    assert ["launch"] * 4 == [row["kind"] for row in first]
    assert 1 == len({row["id"] for row in first})


def test_rank_0_leaves_a_whole_run_directory(apart: Path) -> None:
    assert load_document(Plan, apart / PLAN) == load_document(Plan, apart / "out-0" / PLAN)
    run = load_document(Run, apart / "out-0" / RUN)
    assert ("torchrun", [0, 1, 2, 3]) == (run.launcher, [info.rank for info in run.ranks])


def test_ranks_may_share_a_directory(tmp_path: Path) -> None:
    dump_document(lean_plan(2), tmp_path / PLAN)
    done = torchrun(tmp_path, 2, "-m", "rsag.rank", "--plan", PLAN, "--out", "shared")
    assert done.returncode == 0, done.stderr
    judged = rsag(tmp_path, "judge", "shared", "--json")
    assert (0, []) == (judged.returncode, json.loads(judged.stdout)["reasons"])


def test_another_number_of_ranks_than_planned_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    dump_document(lean_plan(2), tmp_path / PLAN)
    done = subprocess.run(
        [sys.executable, "-m", "rsag.rank", "--plan", PLAN, "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 2 == done.returncode
    assert "plan.json is for another number of ranks; got 3; expected 2; start 2" in done.stderr
    assert not (tmp_path / "out").exists()
