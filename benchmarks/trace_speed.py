"""How long a gigabyte of Kineto trace takes, and how much memory: ours, and in the same run the usual ways to read it.

A trace with a known answer is made in a temporary folder (`make_trace.py`). Each reader is a process of its own, timed
from start to end, imports included; its memory is the largest sum over its process and all their children, looked at
fifty times a second. Ours answers the whole question, NCCL kernels attributed to ranges, and is checked; the others
only load the file. Figures, not a gate: the exit code is 0 whatever they say.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from environment import describe
from make_trace import NUM_EVENTS, write

PROMISE_S, PROMISE_MB = 10.0, 200
OURS, JSON, HTA = "rsag, kernels by range", "json.load", "HolisticTraceAnalysis"

CODE = {
    OURS: """
import json, sys
from pathlib import Path
from rsag.analyze.kernels import read_kernels
from rsag.traces.files import read_trace
document = read_kernels([read_trace(Path(sys.argv[1]))])
names = {row.range for row in document.ranges}
print(json.dumps({name: sum(document.kernels_in(name).values()) for name in names}))
""",
    JSON: """
import gzip, json, sys
with (gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "rb") as file:
    print(len(json.load(file)["traceEvents"]))
""",
    HTA: """
import sys
from hta.trace_analysis import TraceAnalysis
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One process from start to end."""

    wall_s: float
    peak_mb: float
    output: str
    failure: str | None


def run(code: str, path: Path) -> Sample:
    """Read the file in a new process; a failure is a remark in the table, not an exception."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start, peak_kib = time.perf_counter(), 0
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=out, stderr=err)
        while process.poll() is None:
            peak_kib = max(peak_kib, _tree_kib(process.pid))
            time.sleep(0.02)
        wall_s = time.perf_counter() - start
        out.seek(0)
        err.seek(0)
        last_line = (err.read().strip().splitlines() or ["no message"])[-1]
        failure = f"FAILED with exit code {process.returncode}: {last_line}" if process.returncode else None
        return Sample(wall_s=wall_s, peak_mb=peak_kib * 1024 / 1e6, output=out.read(), failure=failure)


def _tree_kib(pid: int) -> int:
    """Resident memory of a process and all below it; pages that two of them share count twice."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return 0
    resident = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return sum(resident) + sum(_tree_kib(int(child)) for child in children)


def rows(sample: Sample, name: str, form: str, ours: Sample, truth: Mapping[str, int]) -> str:
    if sample.failure:
        return f"{name:<26}{form:<6}  {sample.failure}"
    line = f"{name:<26}{form:<6}{sample.wall_s:>8.1f} s{sample.peak_mb:>9.0f} MB"
    if sample is not ours:
        return f"{line}{sample.wall_s / ours.wall_s:>9.1f} x{sample.peak_mb / ours.peak_mb:>8.1f} x"
    answer = json.loads(sample.output)
    right = {name: answer.get(name, 0) for name in truth} == dict(truth)
    kept = right and sample.wall_s <= PROMISE_S and sample.peak_mb <= PROMISE_MB
    said = f"{sum(truth.values()):,} NCCL kernels, {'all in their ranges' if right else 'NOT as they should be'}"
    return f"{line}{'':>20}  {'kept' if kept else 'MISSED'}\n    {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=NUM_EVENTS, help="how large the trace is; 4.3 million are 1.1 GB")
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--hta", action="store_true", help="HolisticTraceAnalysis as well, which takes minutes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.hta and find_spec("hta") is None:
        parser.error("--hta needs HolisticTraceAnalysis in this environment: pip install holistictraceanalysis")
    names = [OURS, JSON, *([HTA] if options.hta else [])]
    print(f"One trace read once by each; promise: {PROMISE_S:g} s and {PROMISE_MB} MB on two cores, gzip included")
    print(describe(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "trace.json", Path(folder) / "trace.json.gz"
        with plain.open("wb") as to:
            truth = write(to, options.events // (10 if options.quick else 1), options.seed)
        with plain.open("rb") as source, gzip.open(packed, "wb", 6) as to:
            shutil.copyfileobj(source, to, 1 << 20)
        sizes = f"{truth.num_bytes / 1e9:.2f} GB, {packed.stat().st_size / 1e6:.0f} MB as gzip"
        print(f"{truth.num_events:,} events, {truth.num_kernels:,} kernels, {truth.num_launches:,} launches; {sizes}\n")
        print(f"{'':<32}{'wall':>10}{'peak':>12}{'time':>11}{'memory':>10}")
        for path, form in ((plain, "plain"), (packed, "gzip")):
            ours = run(CODE[OURS], path)
            print(rows(ours, OURS, form, ours, truth.nccl_kernels_by_range), flush=True)
            for name in names[1:]:
                print(rows(run(CODE[name], path), name, form, ours, truth.nccl_kernels_by_range), flush=True)


if __name__ == "__main__":
    main()
