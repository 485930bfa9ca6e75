"""Our graph clock beside nccl-tests, run in alternation on the same NCCL library: do we measure what they measure?

Promise: medians of AllReduce, ReduceScatter and AllGather from 16 MiB up within 3 % of nccl-tests' (AllGather: or
within nccl-tests' own spread over its runs, whichever is larger); below that the two ranges overlap. The eager clock is
printed beside, without a promise.

Both run with NCCL_GRAPH_REGISTER=0: nccl-tests' graphs would otherwise register their buffers, which torch's do not,
and AllGather over registered buffers is 15 to 25 % faster. torch's AllReduce is in place, so it is set beside
nccl-tests' in-place column; the other two are out of place.

    python benchmarks/fidelity.py --nccl-tests DIR_WITH_BINARIES [--runs 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from rsag import lab
from rsag.launch.devices import count_gpus
from rsag.plan import make_plan
from rsag.plan.latency import plan_latency
from rsag.records.codec import decode
from rsag.records.jsonl import read_rows
from rsag.records.latency import Clock, RoundRow
from rsag.records.plan import Backend, Experiment
from rsag.records.rundir import rank_files
from rsag.stats import LOOKS
from rsag.units import GIB, KIB, MIB, format_bytes

SIZES = (KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
BINARIES = {
    "all_reduce": "all_reduce_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_gather": "all_gather_perf",
}
ENVIRONMENT = {**os.environ, "NCCL_GRAPH_REGISTER": "0"}
PROMISED_FROM, PROMISED = 16 * MIB, 0.03

Times = dict[tuple[str, int], list[float]]
"""(collective, bytes) -> one median in microseconds per run."""


@dataclass(frozen=True, slots=True)
class Line:
    """One collective at one size: ours and theirs, run by run."""

    collective: str
    size: int
    graph: list[float]
    eager: list[float]
    theirs: list[float]

    @property
    def off(self) -> float:
        return median(self.graph) / median(self.theirs) - 1

    @property
    def verdict(self) -> str:
        if self.size < PROMISED_FROM:
            apart = min(self.graph) > max(self.theirs) or max(self.graph) < min(self.theirs)
            return "MISSED: ranges apart" if apart else "ranges overlap"
        spread = (max(self.theirs) - min(self.theirs)) / median(self.theirs)
        allowed = max(PROMISED, spread) if self.collective == "all_gather" else PROMISED
        return "kept" if abs(self.off) <= allowed else f"MISSED: {abs(self.off):.1%} > {allowed:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nccl-tests", type=Path, help="where all_reduce_perf and the others were built")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write every run's medians here")
    options = parser.parse_args()
    if options.nccl_tests is None or count_gpus() < 2:
        print("fidelity: not run: it needs two GPUs and --nccl-tests DIR (built on the NCCL that torch uses)")
        return
    graph, eager, theirs = Times(), Times(), Times()
    for run in range(options.runs):
        for collective, binary in BINARIES.items():
            keep(theirs, run_nccl_tests(options.nccl_tests / binary, collective))
        ours = run_rsag(seed=run)
        keep(graph, ours[Clock.GRAPH])
        keep(eager, ours[Clock.EAGER])
        print(f"run {run + 1} of {options.runs} done", file=sys.stderr)
    lines = [Line(c, s, graph[c, s], eager[c, s], theirs[c, s]) for c in BINARIES for s in SIZES]
    print_table(lines)
    if options.json:
        rows = [{**{k: getattr(line, k) for k in Line.__slots__}, "verdict": line.verdict} for line in lines]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def keep(times: Times, run: Iterable[tuple[str, int, float]]) -> None:
    for collective, size, us in run:
        times.setdefault((collective, size), []).append(us)


def run_nccl_tests(binary: Path, collective: str) -> list[tuple[str, int, float]]:
    """nccl-tests by CUDA graph on all GPUs of one process, slowest rank, no data check (ours checks; they need not)."""
    arguments = ["-b", "1024", "-e", "1G", "-f", "4", "-g", str(count_gpus()), "-n", "20", "-w", "5", "-G", "1"]
    done = subprocess.run(
        [str(binary), *arguments, "-a", "3", "-c", "0"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=ENVIRONMENT,
    )
    rows = []
    for line in done.stdout.splitlines():
        cells = line.split()
        if len(cells) >= 11 and cells[0].isdigit() and int(cells[0]) in SIZES:
            out_of_place, in_place = times_of(cells)
            rows.append((collective, int(cells[0]), in_place if collective == "all_reduce" else out_of_place))
    if len(rows) != len(SIZES):
        raise SystemExit(f"{binary}: {len(rows)} of {len(SIZES)} sizes in its output:\n{done.stdout}")
    return rows


def times_of(cells: list[str]) -> tuple[float, float]:
    """size count type redop root | time algbw busbw wrong | time algbw busbw wrong: the two times, in us."""
    numbers = [cell for cell in cells[5:] if re.fullmatch(r"-?[\d.]+|N/A", cell)]
    return float(numbers[0]), float(numbers[4])


def run_rsag(seed: int) -> dict[Clock, list[tuple[str, int, float]]]:
    """One launch of ours: per clock, the medians over cycles of the maxima over ranks."""
    ranks = count_gpus()
    latency = plan_latency(
        world_size=ranks,
        backend=Backend.NCCL,
        sizes=SIZES,
        candidates=("reduce_scatter", "all_gather"),
        max_rounds=LOOKS[0].rounds,
    )
    plan = make_plan(
        world_size=ranks, backend=Backend.NCCL, experiments=[Experiment.LATENCY], seed=seed, latency=latency
    )
    started = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        lab.run_plan(
            plan, directory, lab.Circumstances(environment=ENVIRONMENT, started_utc=started, command="fidelity")
        )
        rows = [
            [decode(RoundRow, row) for row in read_rows(path).rows if row["kind"] == "round"]
            for _, path in rank_files(directory)
        ]
    found: dict[Clock, list[tuple[str, int, float]]] = {}
    for index, case in enumerate(latency.cases):
        for arm in range(3):
            cycles = [
                max(times)
                for of_ranks in zip(*([row for row in rank if row.case == index] for rank in rows))
                for times in zip(*(row.ns[arm][latency.warmup_cycles :] for row in of_ranks))
            ]
            name = latency.arms[arm].composition
            found.setdefault(case.clock, []).append((name, case.bytes, median(cycles) / 1e3))
    return found


def print_table(lines: list[Line]) -> None:
    print(f"{'':15}{'':>9}{'nccl-tests us':>15}{'range':>17}{'graph us':>10}{'off':>7}{'eager us':>10}  promise")
    for line in lines:
        spread = f"{min(line.theirs):.1f}-{max(line.theirs):.1f}"
        print(
            f"{line.collective:15}{format_bytes(line.size):>9}{median(line.theirs):15.1f}{spread:>17}"
            f"{median(line.graph):10.1f}{line.off:7.1%}{median(line.eager):10.1f}  {line.verdict}"
        )


if __name__ == "__main__":
    main()
