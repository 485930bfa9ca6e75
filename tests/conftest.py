"""What several rooms' tests share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rsag.launch import ForkServer, Outcome, failure

RunRanks = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def run_gloo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunRanks]:
    """`run_gloo(entry, *arguments, world_size=...)`: real ranks whose torch is imported once for the whole session.

    Returns what each rank left as `rank-NNNN.json` in its first argument, a fresh directory.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    out = tmp_path_factory.mktemp("fork-server")
    with ForkServer(out=out, environment=environment, preload=["torch.distributed", "rsag.rank.__main__"]) as server:

        def run(entry: str, *arguments: str, world_size: int) -> list[Any]:
            directory: Path = tmp_path_factory.mktemp("ranks")
            report = server.run(
                entry=entry,
                arguments=[str(directory), *arguments],
                world_size=world_size,
                out=directory,
                deadline_s=120,
            )
            if report.outcome is not Outcome.OK:
                raise failure(report)
            return [json.loads((directory / f"rank-{rank:04d}.json").read_text()) for rank in range(world_size)]

        yield run
