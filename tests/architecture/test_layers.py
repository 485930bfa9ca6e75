"""The house stands as it is drawn: what may import what, and what a process drags in."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Whose frame asks for a module: our own files only, not those of torch, which may well want numpy.
SPY = """
import builtins, json, sys
asked = set()
real_import = builtins.__import__
def spy(name, globals=None, *rest):
    if (globals or {}).get("__name__", "").split(".")[0] == "rsag" and not (rest and len(rest) > 2 and rest[2]):
        asked.add(name.split(".")[0])
    return real_import(name, globals, *rest)
builtins.__import__ = spy
"""


def answer(source: str) -> list[str]:
    """What a fresh interpreter prints as one JSON document."""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    names: list[str] = json.loads(done.stdout)
    return names


def test_imports_go_down_the_house() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    "module",
    ["rsag", "rsag.cli", "rsag.cli.run", "rsag.cli.prove", "rsag.lab", "rsag.analyze.verdict", "rsag.report.verdict"],
)
def test_torch_is_not_needed_by(module: str) -> None:
    assert [] == answer(f"import json, sys, {module}; print(json.dumps([m for m in sys.modules if m == 'torch']))")


def test_the_help_imports_no_command() -> None:
    source = """
import contextlib, io, json, sys
from rsag.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
print(json.dumps([name for name in sys.modules if name.startswith(("rsag.cli.", "rich"))]))
"""
    assert [] == answer(source)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_rank_program_asks_for_torch_and_the_standard_library_alone() -> None:
    source = f"{SPY}\nimport rsag.rank.__main__\nprint(json.dumps(sorted(asked - set(sys.stdlib_module_names))))"
    assert ["rsag", "torch"] == answer(source)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_rank_program_runs_where_click_and_rich_are_not() -> None:
    source = """
import json, sys
sys.modules["click"] = sys.modules["rich"] = None
import rsag.rank.__main__
print(json.dumps([name for name in ("click", "rich") if sys.modules[name]]))
"""
    assert [] == answer(source)
