"""What several rooms' tests share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsag.launch import ForkServer, Outcome, failure

RunGloo = Callable[..., list[Any]]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """On a cluster's machine there may be no pytest-timeout, and --strict-config refuses what nobody declared."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds a test may take, where pytest-timeout is installed")


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): without pytest-timeout, without effect")


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Ranks from a process that imports torch once for the whole session."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    out = tmp_path_factory.mktemp("fork-server")
    with ForkServer(out=out, environment=environment, preload=["torch.distributed", "rsag.rank.__main__"]) as server:
        yield server


@pytest.fixture(scope="session")
def run_gloo(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> RunGloo:
    """`run_gloo("module:function", *arguments, world_size=...)` gives what each rank left.

    The function's first argument is a fresh directory, in which rank N leaves `rank-NNNN.json`.
    """

    def run(entry: str, *arguments: str, world_size: int) -> list[Any]:
        out = tmp_path_factory.mktemp("ranks")
        report = fork_server.run(
            entry=entry, arguments=[str(out), *arguments], world_size=world_size, out=out, deadline_s=120
        )
        if report.outcome is not Outcome.OK:
            raise failure(report)
        return [json.loads((out / f"rank-{rank:04d}.json").read_text()) for rank in range(world_size)]

    return run
