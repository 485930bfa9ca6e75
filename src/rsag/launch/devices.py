"""What this machine has room for, found without torch."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

from rsag.errors import UsageError
from rsag.records.plan import Backend
from rsag.units import MIB, format_bytes

RANK_BYTES = 150 * MIB
"""A Gloo rank forked from a process that has imported torch, with room for its buffers (measured 60 to 100 MiB)."""


def require_torch() -> None:
    """Return where the ranks will find torch; UsageError, before anything is started, where they will not."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "torch is not installed here, and real ranks need it",
            do="use the environment that has it, or pip install '.[torch]' from the checkout; proofs need none",
        )


def count_gpus(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> int:
    """NVIDIA GPUs that a process here would see."""
    present = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in devices.glob("nvidia*"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    return min(present, len(named))


def most_ranks(backend: Backend) -> tuple[int, str]:
    """How many ranks can be started here, and what limits them. Raises UsageError where there can be none."""
    if backend is Backend.NCCL:
        gpus = count_gpus()
        if not gpus:
            raise UsageError("NCCL has no ranks without GPUs", got="none here", do="use --backend gloo")
        return gpus, f"one per GPU, {gpus} here"
    free = available_bytes()
    return max(1, free // RANK_BYTES), f"{format_bytes(RANK_BYTES)} each of {format_bytes(free)} free memory"


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Memory that new processes can have, as the kernel estimates it."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is None:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(found[1]) * 1024
