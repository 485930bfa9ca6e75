"""How long a GPU's clocks were held down, and by what: cumulative counters, read before and after a round's cycles."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rsag.errors import UnsupportedError
from rsag.rank.nvml import Nvml

_CAUSES = {
    "power cap": 74,  # NVML_FI_DEV_PERF_POLICY_POWER
    "thermal": 75,  # NVML_FI_DEV_PERF_POLICY_THERMAL
    "board limit": 77,  # NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT
    "reliability": 79,  # NVML_FI_DEV_PERF_POLICY_RELIABILITY
    "hardware thermal slowdown": 270,  # NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN
    "power brake": 271,  # NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
}
"""NVML's counters in nanoseconds, by number, since older bindings do not name all of them (nvml.h, driver 580)."""

HeldDown = Callable[[], dict[str, int]]
"""Nanoseconds so far, by cause. Empty where nothing can be read."""


def held_down(device: torch.device) -> HeldDown:
    """The counters of `device`."""
    if device.type != "cuda":
        return dict
    try:
        nvml = Nvml(device)
    except UnsupportedError:
        return dict
    fields = [(number, 0) for number in _CAUSES.values()]

    def read() -> dict[str, int]:
        return {cause: value for cause, value in zip(_CAUSES, nvml.read(fields)) if value is not None}

    return read
