"""`rsag env`: what this machine's backends can do."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rsag import __version__
from rsag.cli.options import json_option, print_json
from rsag.errors import ExitCode

if TYPE_CHECKING:
    from rsag.records.capability import Capabilities
    from rsag.records.plan import Backend

TESTED_TORCH = {
    "2.13.0": "the whole suite, Gloo, CPU",
    "2.11.0": "contracts, timing, wire bytes and memory over NCCL 2.28.9 on two H200",
    "2.5.0": "the tests of the shim over its names",
    "the others from 2.5 to 2.14": "the shim's tests on stand-ins with their names; 2.14.1's signatures were read",
}
"""Which versions were really run, and how; the rest of the supported range is by the shim's tests alone."""


@click.command("env")
@click.option("--backend", metavar="NAME", help="Only this one. Default: gloo, and nccl where there is a GPU.")
@json_option
def command(backend: str | None, as_json: bool) -> int:
    """Say what this machine's backends can do, probed in child processes.

    Each collective is called once per operator and dtype on two ranks that may crash; what came back is compared with
    an exact oracle.
    """
    from rsag.cli.run import chosen_backend
    from rsag.launch.devices import count_gpus, require_torch
    from rsag.records.codec import document
    from rsag.records.plan import Backend

    if backend is not None:
        backends = [chosen_backend(backend)]
    else:
        backends = [Backend.GLOO, *([Backend.NCCL] if count_gpus() else [])]
    require_torch()
    tables = _probe(backends)
    if as_json:
        print_json(
            {
                "schema": "env",
                "version": 1,
                "rsag": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "gpus": count_gpus(),
                "tested_torch": TESTED_TORCH,
                "capabilities": [document(table) for table in tables],
            }
        )
        return ExitCode.DONE
    from rsag.report.capability import print_capabilities
    from rsag.report.tables import console

    out = console()
    out.print(f"rsag {__version__}, Python {platform.python_version()}, {platform.platform()}, {count_gpus()} GPUs")
    for version, how in TESTED_TORCH.items():
        out.print(f"  torch {version}: {how}", style="dim")
    for table in tables:
        out.print()
        print_capabilities(table, out)
    return ExitCode.DONE


def _probe(backends: list[Backend]) -> list[Capabilities]:
    from rsag.lab import PRELOAD
    from rsag.launch import ForkServer
    from rsag.launch.devices import most_ranks
    from rsag.launch.probing import probe_backend

    world_sizes = [min(2, most_ranks(one)[0]) for one in backends]
    with tempfile.TemporaryDirectory(prefix="rsag-env-") as scratch:
        out = Path(scratch)
        with ForkServer(out=out, environment=os.environ, preload=PRELOAD) as server:
            return [probe_backend(server, one, world_size, out) for one, world_size in zip(backends, world_sizes)]
