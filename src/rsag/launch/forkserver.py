"""The fork server: an interpreter that imports torch once and forks groups of ranks from it, one group after another.

It reads commands on standard input, answers events on standard output and ends when its input does: the pipe is also
the lifeline of the ranks. multiprocessing's fork server would import `__main__` again in every rank, which runs
unguarded scripts twice and fails in notebooks, and its ranks would share the launcher's process group, so its Ctrl-C.
"""

from __future__ import annotations

import gc
import importlib
import shutil
import sys
from collections.abc import Sequence

from rsag.launch.group import run_group
from rsag.launch.messages import Ready
from rsag.launch.wires import Wires


def main(*, preload: Sequence[str], scratch: str) -> None:
    """Serves until standard input ends, then removes the directory `scratch`."""
    try:
        wires = Wires()
        _import_all(preload)
        wires.listen_to_signals()
        wires.send(Ready())
        while (command := wires.next_command()) is not None:
            run_group(command, wires)
    finally:
        # The launcher does so too; this is for the case that it was killed.
        shutil.rmtree(scratch, ignore_errors=True)


def _import_all(preload: Sequence[str]) -> None:
    for module in preload:
        importlib.import_module(module)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        sys.exit(
            f"importing {', '.join(preload)} initialised CUDA, which no forked rank could use; import it in the rank"
        )
    # A collection in a rank would write to, and so copy, every page that the imports have filled.
    gc.collect()
    gc.freeze()
