"""NVIDIA's management library for one device, where nvidia-ml-py is installed."""

from __future__ import annotations

from typing import Any

import torch

from rsag.errors import UnsupportedError


class Nvml:
    """One device's cumulative counters. Raises UnsupportedError, which says why, where they cannot be read."""

    def __init__(self, device: torch.device) -> None:
        try:
            import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # nvidia-ml-py, optional
        except ImportError:
            raise UnsupportedError("nvidia-ml-py is not installed", do="pip install nvidia-ml-py") from None
        self._pynvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            # By UUID, which CUDA_VISIBLE_DEVICES does not renumber.
            uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
            self._handle = (
                pynvml.nvmlDeviceGetHandleByIndex(device.index)
                if uuid is None
                else pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            )
        except pynvml.NVMLError as error:
            raise UnsupportedError(f"NVML: {error}") from error

    def read(self, fields: list[tuple[int, int]]) -> list[int | None]:
        """The values of (field, scope) pairs; None for one that this device or driver does not have."""
        try:
            found = self._pynvml.nvmlDeviceGetFieldValues(self._handle, fields)
        except self._pynvml.NVMLError as error:
            raise UnsupportedError(f"NVML: {error}") from error
        return [None if value.nvmlReturn else int(value.value.ullVal) for value in found]
