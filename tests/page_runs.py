"""Run directories that the page has trouble with, made from the kept ones, and all figures of a view."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rsag.analyze.verdict import judge
from rsag.rank.latency import decide_arms
from rsag.records.codec import dump_document, encode, load_document
from rsag.records.latency import LatencyPlan
from rsag.records.plan import Plan
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
    """The records of a kept run, without the page that may lie beside them."""
    shutil.copytree(kept, directory, ignore=shutil.ignore_patterns("report.html"))
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


# ------------------------------------------------------------------------------------------- several kinds of buffers

SYMMETRIC_NS = (0.5, 0.45, 0.4, 0.5)
"""The time of each arm in symmetric buffers, as a multiple of that in plain ones: ratios fall by 10 and 20 %."""

_Row = dict[str, Any]


def kinds_run(directory: Path, *, control_differs: bool = False) -> Path:
    """The kept timings with every arm but the empty one in symmetric buffers as well, judged again.

    With `control_differs` the control in symmetric buffers takes a fifth longer, so that its cases are invalid.
    """
    copy_run(LATENCY, directory)
    num = len(SYMMETRIC_NS)
    factors = (*SYMMETRIC_NS[:-1], SYMMETRIC_NS[-1] * (1.2 if control_differs else 1))

    def plan_again(plan: _Row) -> None:
        arms = plan["latency"]["arms"]
        plan["latency"]["arms"] = [*arms[:num], *({**arm, "buffers": "symmetric"} for arm in arms[:num]), *arms[num:]]

    edit(directory / "plan.json", plan_again)
    timing = load_document(Plan, directory / "plan.json").latency
    assert timing is not None
    files = sorted(directory.glob("rank-*.jsonl"))
    ranks = [
        [again for line in file.read_text().splitlines() for again in _again(json.loads(line), factors)]
        for file in files
    ]
    _look_again(timing, ranks)
    for file, rows in zip(files, ranks):
        file.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    dump_document(judge(directory), directory / "verdict.json")
    return directory


def _again(row: _Row, factors: Sequence[float]) -> list[_Row]:
    """What stands for one row of a rank once every arm has a second one."""
    num = len(factors)
    if row["kind"] == "round":
        ns, wrong = row["ns"], row["wrong"]
        slower = [[round(time * factor) for time in own] for own, factor in zip(ns, factors)]
        return [{**row, "ns": [*ns[:num], *slower, *ns[num:]], "wrong": [*wrong[:num], *wrong[:num], *wrong[num:]]}]
    if row["kind"] == "wire":
        sent = row["sent_bytes"] and 0.5 * row["sent_bytes"]
        return [row, {**row, "arm": row["arm"] + num, "sent_bytes": sent}]
    return [row]


def _look_again(timing: LatencyPlan, ranks: Sequence[Sequence[_Row]]) -> None:
    """Have rank 0 decide on the new times what it decided on the old ones."""
    rounds: dict[tuple[int, int], list[Any]] = {}
    for rows in ranks:
        for row in rows:
            if row["kind"] == "round":
                rounds.setdefault((row["case"], row["round"]), []).append(row["ns"])
    for look in (row for row in ranks[0] if row["kind"] == "look"):
        of_ranks = [rounds[look["case"], number] for number in range(look["rounds"])]
        merged = [[[max(times) for times in zip(*arm)] for arm in zip(*ns)] for ns in of_ranks]
        decisions = decide_arms(timing, merged)
        look["stops"] = [None if made is None else encode(made.stop) for made in decisions]
        look["ratios"] = []
