"""Bytes that really crossed the wire, from counters that neither torch nor we keep: the kernel's and the driver's."""

from __future__ import annotations

import math
import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.collectives import COLLECTIVES, Kind
from rsag.errors import UnsupportedError
from rsag.rank.bench import Arm
from rsag.rank.context import Context
from rsag.rank.latency import case_programs
from rsag.rank.nvml import Nvml
from rsag.rank.tiles import Tiles
from rsag.records.latency import ArmRole, Case, WireRow
from rsag.records.plan import Backend
from rsag.units import MIB

ENOUGH_BYTES = 64 * MIB
"""NVLink counts in KiB and for the whole device: so much has to move before a reading means something."""


@dataclass(frozen=True, slots=True)
class Counter:
    """Cumulative (sent, received) bytes of this rank, and what was read. `coarse` ones need much traffic."""

    name: str
    read: Callable[[], tuple[int, int]]
    coarse: bool


def observe_wire(context: Context) -> None:
    """Count one arm after the other, outside of any timing."""
    plan = context.plan.latency
    if plan is None:
        return
    counter, reason = _counter(context)
    for index, case in enumerate(plan.wire_cases):
        tiles = Tiles(case.op, case.dtype, context.world_size, context.device)
        for arm, programs in enumerate(case_programs(context, plan, case)):
            if programs is None or plan.arms[arm].role is ArmRole.CONTROL:
                continue
            sent = received = None
            calls = 0
            if counter is not None:
                calls = _num_calls(case, counter, context.world_size)
                with Groups(programs) as groups:
                    mine, kind = programs[context.rank], plan.arms[arm].buffers
                    with Arm(mine, groups, tiles, case, context.device, buffers=kind) as bound:
                        sent, received = _count(context, counter, bound, calls)
            context.write(
                WireRow(
                    case=index,
                    arm=arm,
                    calls=calls,
                    counter="" if counter is None else counter.name,
                    sent_bytes=sent,
                    received_bytes=received,
                    reason=reason,
                )
            )


def _num_calls(case: Case, counter: Counter, world_size: int) -> int:
    if not counter.coarse:
        return 3
    ideal = float(COLLECTIVES[Kind.ALL_REDUCE].wire_bytes(case.bytes, world_size))
    return max(3, math.ceil(ENOUGH_BYTES / max(ideal, 1.0)))


def _count(context: Context, counter: Counter, bound: Arm, calls: int) -> tuple[float, float]:
    """Bytes per call, less what an idle stretch of the same length counts."""
    bound.reset()
    _run(bound, 1, context.device)
    _meet(context)
    before, began = counter.read(), time.monotonic()
    _run(bound, calls, context.device)
    _meet(context)
    after, took = counter.read(), time.monotonic() - began
    idle = (0, 0)
    if counter.coarse:
        quiet = counter.read()
        time.sleep(took)
        later = counter.read()
        idle = (later[0] - quiet[0], later[1] - quiet[1])
        _meet(context)
    return tuple((after[side] - before[side] - idle[side]) / calls for side in (0, 1))  # type: ignore[return-value]


def _run(bound: Arm, calls: int, device: torch.device) -> None:
    for _ in range(calls):
        bound.call()
    if device.type == "cuda":
        torch.cuda.synchronize()


def _meet(context: Context) -> None:
    dist.barrier(group=context.control)


def _counter(context: Context) -> tuple[Counter | None, str]:
    """The counter of this backend, or why there is none; the ranks agree, for counting is collective."""
    counter, reason = _tcp_counter() if context.plan.backend is Backend.GLOO else _nvlink_counter(context.device)
    missing = torch.tensor([int(counter is None)])
    dist.all_reduce(missing, group=context.control)
    if missing.item():
        return None, reason or "another rank has no counter"
    return counter, ""


# --------------------------------------------------------------------------------------------------------------- TCP

_BYTES_RECEIVED_AT, _BYTES_SENT_AT, _INFO_BYTES = 128, 200, 256
"""Offsets in Linux's struct tcp_info (include/uapi/linux/tcp.h); bytes_sent is there since 4.19."""


def _tcp_counter() -> tuple[Counter | None, str]:
    if not hasattr(socket, "TCP_INFO") or not os.path.isdir("/proc/self/fd"):
        return None, "TCP_INFO is Linux's"
    try:
        sent, _ = tcp_bytes()
    except OSError as error:
        return None, f"TCP_INFO cannot be read: {error}"
    if sent < 0:
        return None, "this kernel's TCP_INFO has no bytes_sent (it came with 4.19)"
    return Counter("TCP_INFO of this process's stream sockets", tcp_bytes, coarse=False), ""


def tcp_bytes() -> tuple[int, int]:
    """Bytes sent and received so far by all TCP sockets of this process; (-1, -1) where the kernel does not say."""
    sent = received = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            fd = int(name)
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as one:
                if one.type != socket.SOCK_STREAM or one.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            if len(info) < _BYTES_SENT_AT + 8:
                return -1, -1
            sent += struct.unpack_from("Q", info, _BYTES_SENT_AT)[0]
            received += struct.unpack_from("Q", info, _BYTES_RECEIVED_AT)[0]
    return sent, received


# ------------------------------------------------------------------------------------------------------------ NVLink

_ALL_LINKS = 0xFFFFFFFF
_FIELDS = [(138, _ALL_LINKS), (139, _ALL_LINKS)]
"""NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and RX, in KiB (nvml.h)."""


def _nvlink_counter(device: torch.device) -> tuple[Counter | None, str]:
    try:
        nvml = Nvml(device)
        if None in nvml.read(_FIELDS):
            return None, "NVML has no NVLink data counters here"
    except UnsupportedError as error:
        return None, f"NVLink's counters cannot be read: {error}"

    def read() -> tuple[int, int]:
        sent, received = nvml.read(_FIELDS)
        return (sent or 0) * 1024, (received or 0) * 1024

    return Counter("NVML NVLink data, whole device", read, coarse=True), ""
