"""A launcher with short words for the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rsag
from launching import Launch
from rsag.launch import LaunchReport, OnEvent, run_ranks

PATH = os.pathsep.join([str(Path(rsag.__file__).parents[1]), str(Path(__file__).parent)])


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which ranks find `toys`, and in which stores end up below `tmp_path`."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, "PYTHONPATH": PATH, "TMPDIR": str(tmp_path)}


@pytest.fixture
def launch(tmp_path: Path, environment: dict[str, str]) -> Launch:
    """Runs a toy in `tmp_path`."""

    def run(
        entry: str, *arguments: str, world_size: int = 2, deadline_s: float = 20, on_event: OnEvent | None = None
    ) -> LaunchReport:
        return run_ranks(
            entry=f"toys:{entry}",
            arguments=arguments,
            world_size=world_size,
            out=tmp_path,
            deadline_s=deadline_s,
            environment=environment,
            on_event=on_event,
        )

    return run
