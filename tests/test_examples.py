"""The scripts under examples/ work as the tutorial shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_wrong_bucketing_is_refuted_at_its_smallest_world_and_the_right_one_is_proved() -> None:
    wrong, difference, lines, right, costs = run("my_composition.py")

    assert wrong == "gathered_at_once: result refuted at N=2, M=4"
    assert difference.strip() == "rank 0 element 1: missing x[0][1], x[1][1], extra x[0][2], x[1][2]"
    assert lines.count("examples/my_composition.py:") == 2
    assert right == "gathered_by_bucket: proved in every world tried"
    assert costs.strip() == "256 MiB on 4 ranks: 12 steps, 384 MiB sent, peak 576 MiB"


def test_the_tutorial_shows_what_the_example_prints() -> None:
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()

    assert "\n".join(run("my_composition.py")) in tutorial
