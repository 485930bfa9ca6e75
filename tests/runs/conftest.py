from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from running import lean_plan

from rsag.analyze.verdict import judge
from rsag.launch import ForkServer, Outcome, failure
from rsag.records.codec import dump_document
from rsag.records.plan import Planted
from rsag.records.rundir import PLAN
from rsag.records.verdict import Verdict

LeanRun = Callable[..., Verdict]


@pytest.fixture(scope="session")
def lean_run(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> LeanRun:
    """`lean_run(world_size, planted=...)` gives the verdict on a lean plan under the local launcher."""

    def run(world_size: int, planted: tuple[Planted, ...] = tuple(Planted)) -> Verdict:
        out: Path = tmp_path_factory.mktemp("run")
        dump_document(lean_plan(world_size, planted=planted), out / PLAN)
        report = fork_server.run(
            entry="rsag.rank.__main__:main",
            arguments=["--plan", str(out / PLAN), "--out", str(out)],
            world_size=world_size,
            out=out,
            deadline_s=60,
        )
        if report.outcome is not Outcome.OK:
            raise failure(report)
        return judge(out)

    return run
