"""Run directories that the page has trouble with, made from the kept ones, and all figures of a view."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rsag.report.page.figures import Figure

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
LATENCY = RESULTS / "latency_h200x2_20261130"
CONTRACTS = RESULTS / "contracts_h200x2_20261130"
MEMORY = RESULTS / "memory_h200x2_20261130"
KERNELS = RESULTS / "kernels_h200x2_20261201"
KEPT = (LATENCY, CONTRACTS, MEMORY, KERNELS)

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    "{{ 7 * 7 }}\" ' & \x00\x1b[31m\u202e\u2028\ud800"
)
FREE_TEXT = {
    *("host", "device", "message", "command", "platform", "evidence", "conditions", "sentence"),
    *("contract", "composition", "expected", "got", "reason"),
}
"""Keys of the documents that hold any text; every other string is a word of ours."""


def copy_run(kept: Path, directory: Path) -> Path:
    shutil.copytree(kept, directory)
    return directory


def edit(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change the JSON document in `path` in place."""
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def hostile_run(kept: Path, directory: Path) -> Path:
    """A copy of `kept` in which every text that a machine, a user or a library could have chosen is hostile."""
    copy_run(kept, directory)
    for name in ("plan.json", "run.json", "verdict.json"):
        edit(directory / name, _poison)

    def of_ranks(run: dict[str, object]) -> None:
        for rank in run["ranks"]:  # type: ignore[attr-defined]
            rank["environment"] = {f"NCCL_{HOSTILE}": HOSTILE}
            rank["versions"] = {HOSTILE: HOSTILE}

    edit(directory / "run.json", of_ranks)
    return directory


def _poison(data: object) -> None:
    if isinstance(data, list):
        for item in data:
            _poison(item)
    elif isinstance(data, dict):
        for key, value in data.items():
            if isinstance(value, str) and key in FREE_TEXT:
                data[key] = value + HOSTILE
            else:
                _poison(value)


def figures(value: object) -> Iterator[Figure]:
    """Every figure in `value`, however deep."""
    if isinstance(value, Figure):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from figures(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from figures(getattr(value, field.name))


def whole_run(directory: Path) -> Path:
    """One run with every experiment of two ranks: the kept ones put together."""
    copy_run(LATENCY, directory)
    parts = {"contracts": CONTRACTS, "memory": MEMORY, **dict.fromkeys(("kernels", "boundaries", "logged"), KERNELS)}
    found = {name: json.loads((kept / "verdict.json").read_text())[name] for name, kept in parts.items()}
    planned = {name: json.loads((parts[name] / "plan.json").read_text())[name] for name in ("memory", "kernels")}
    edit(directory / "verdict.json", lambda verdict: verdict.update(found))
    edit(directory / "plan.json", lambda plan: plan.update(planned))
    for rank in ("rank-0000.jsonl", "rank-0001.jsonl"):
        *rows, end = (directory / rank).read_text().splitlines()
        rows += [line for line in (MEMORY / rank).read_text().splitlines() if '"kind":"memory"' in line]
        (directory / rank).write_text("\n".join([*rows, end]) + "\n")
    return directory
