"""How long a user waits for the command line: each command's median beside its promise, and ratios within one run.

Whole processes by the wall clock, in rounds: every command once per round, in a random order. A ratio is the median of
the rounds' own ratios, so that a slow minute slows both sides. Figures, not a gate: the exit code is 0 whatever
they say.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from environment import describe

RSAG = str(Path(sys.executable).with_name("rsag"))
NOTHING, CLICK, TORCH = "python -c pass", "python: import click", "python: import torch"
IMPORT, HELP, PROVE = "python: import rsag", "rsag --help", "rsag prove --json"
PROVE_40, CONTRACTS = "  the same, M in 1-40, sum and max", "rsag run --only contracts -n 4, Gloo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, the seconds that it must stay under (None: only compared with), and what its output says."""

    name: str
    argv: tuple[str, ...]
    promise_s: float | None = None
    remark: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One process from start to end."""

    wall_s: float
    output: str
    failure: str | None


Samples = Mapping[str, Sequence[Sample]]


def _python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def _torch_free(output: str) -> str:
    return "torch was imported: MISSED" if "True" in output else "torch is not imported: kept"


def _worlds(output: str) -> str:
    proofs = json.loads(output)
    return f"{proofs['num_worlds']:,} worlds, {proofs['seconds']:.2f} s of it proving"


SMALL = (
    Command(name=NOTHING, argv=_python("pass")),
    Command(name=CLICK, argv=_python("import click")),
    Command(name=IMPORT, argv=_python("import sys, rsag; print('torch' in sys.modules)"), remark=_torch_free),
    Command(name=HELP, argv=(RSAG, "--help"), promise_s=0.25),
)
LARGE = (
    Command(name=TORCH, argv=_python("import torch")),
    Command(name=PROVE, argv=(RSAG, "prove", "--json"), promise_s=2.0, remark=_worlds),
    Command(
        name=PROVE_40,
        argv=(RSAG, "prove", "--json", "--ranks", "1-8", "--numel", "1-40", "--op", "sum,max"),
        promise_s=10.0,
        remark=_worlds,
    ),
    Command(
        name=CONTRACTS,
        argv=(RSAG, "run", "--only", "contracts", "--world-size", "4", "--backend", "gloo", "--json"),
        promise_s=15.0,
    ),
)
RATIOS = ((IMPORT, NOTHING), (HELP, NOTHING), (HELP, CLICK), (CONTRACTS, TORCH))


def run(command: Command) -> Sample:
    """Run it in an empty directory of its own; a failure is a remark in the table, not an exception."""
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        try:
            done = subprocess.run(command.argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except OSError as error:
            return Sample(wall_s=0.0, output="", failure=f"FAILED: {error.strerror}: {command.argv[0]}")
        wall_s = time.perf_counter() - start
    last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
    failure = f"FAILED with exit code {done.returncode}: {last_line}" if done.returncode else None
    return Sample(wall_s=wall_s, output=done.stdout, failure=failure)


def measure(commands: Sequence[Command], num_rounds: int, rng: random.Random) -> Samples:
    """`num_rounds` samples of each command, one per round."""
    samples: dict[str, list[Sample]] = {command.name: [] for command in commands}
    for _ in range(num_rounds):
        for command in rng.sample(commands, len(commands)):
            samples[command.name].append(run(command))
    return samples


def row(command: Command, samples: Sequence[Sample]) -> str:
    """What, median, spread, promise, kept or missed; a second line where the output says something, or it failed."""
    seconds = [sample.wall_s for sample in samples]
    middle, spread = median(seconds), f"{min(seconds):.3f} to {max(seconds):.3f}"
    promise = "" if command.promise_s is None else f"< {command.promise_s:g} s"
    kept = "" if command.promise_s is None else "kept" if middle < command.promise_s else "MISSED"
    failures = [sample.failure for sample in samples if sample.failure]
    if failures:
        kept, remark = "FAILED", failures[0]
    else:
        remark = command.remark(samples[-1].output) if command.remark else ""
    line = f"{command.name:<37}{middle:>8.3f}{spread:>17}{promise:>9}  {kept}".rstrip()
    return f"{line}\n    {remark}" if remark else line


def ratio(samples: Samples, above: str, below: str) -> str:
    """How many times as long `above` takes as `below`, round by round; failures take no part."""
    rounds = zip(samples[above], samples[below])
    ratios = [a.wall_s / b.wall_s for a, b in rounds if not a.failure and not b.failure]
    if not ratios:
        return f"{above} / {below}: no figure"
    return f"{f'{above} / {below}':<59}{median(ratios):>6.2f} ({min(ratios):.1f} to {max(ratios):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: 5 and 1 instead of 20 and 3")
    parser.add_argument("--seed", type=int, default=0, help="starts the order within the rounds")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    num_small, num_large = (5, 1) if options.quick else (20, 3)
    print(f"Seconds by the wall clock, medians of {num_small} and {num_large} rounds")
    print(describe())
    print(f"\n{'':<37}{'median':>8}{'spread':>17}{'promise':>9}")
    measure(SMALL, 1, rng)  # byte code and the file cache, as a second use meets them
    samples: dict[str, Sequence[Sample]] = {}
    for commands, num_rounds in ((SMALL, num_small), (LARGE, num_large)):
        samples |= measure(commands, num_rounds, rng)
        for command in commands:
            print(row(command, samples[command.name]), flush=True)
    print("\nRatios within the run, median (and range)")
    for above, below in RATIOS:
        print(ratio(samples, above, below))


if __name__ == "__main__":
    main()
