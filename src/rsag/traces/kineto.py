"""torch.profiler's traces: Chrome JSON as Kineto writes it, plain or gzip, whole or damaged.

Read from pytorch/kineto libkineto/src/output_json.cpp and from traces written between 2021 and torch 2.13.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from rsag.traces.blocks import EventReader
from rsag.traces.chunks import MAX_BYTES, Chunks, inflate_head
from rsag.traces.events import Capture, Format, Limit, LimitCode, Origin, RangeKind
from rsag.traces.kineto_flows import read_flows
from rsag.traces.kineto_helper import Helper
from rsag.traces.kineto_joined import MAX_IDLE_MARKS, Kept, join
from rsag.traces.kineto_rows import rows_of
from rsag.traces.skips import Skips, int64, printable

_HEAD_BYTES = 64 << 10
_FIRST_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*(?=\{)')
_MAX_JOBS, _LONGEST_JOB = 8, 4 << 20  # in bytes: thousands of groups with their ranks
_SCHEMA = re.compile(rb'"schemaVersion"\s*:\s*(\d{1,9})\b')


def sniff(head: bytes, _path: Path) -> bool:
    """Whether a file that begins like this (up to 64 KiB as stored) is a Chrome trace."""
    text = inflate_head(head, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return b'"ph"' in text
    return text.startswith(b"{") and any(key in text for key in _FIRST_KEYS)


def read(path: Path, max_bytes: int = MAX_BYTES) -> Capture:
    """All in the trace that bears on communication.

    Memory grows with what is kept, by 32 bytes with each call of the CUDA API, and by 24 and its name with each range.

    Times are on the host's clock where the file says its base, so that several ranks' files can be laid side by side.
    `max_bytes` bounds the decompressed file, 64 GiB by default.

    Raises UsageError for a file that has no events or hardly any that can be read, that is larger than `max_bytes`, or
    that grows more than 200 times and beyond 256 MiB when it is decompressed; RunFailedError where the second process,
    which helps with large files, dies.
    """
    skips = Skips()
    chunks, reader = Chunks(path, max_bytes), EventReader(skips)
    with Helper() as helper:
        parts = [rows_of(block, skips) for block in reader.blocks(chunks, helper.offer)]
        parts += helper.finish(skips)
    parts.sort(key=lambda rows: rows.offset)
    around = reader.head + b"\n" + reader.tail
    base_ns = _base_ns(around)
    kept = join(parts, base_ns, functools.partial(read_flows, path, max_bytes, base_ns))
    damage = chunks.damage or (None if reader.complete else "the list of events is not closed")
    return Capture(
        source=str(path),
        format=Format.KINETO,
        origin=_origin(around),
        operations=kept.operations,
        launches=kept.launches,
        ranges=kept.ranges,
        calls=kept.calls,
        num_other_kernels=kept.num_other_kernels,
        limits=tuple(_limits(kept, damage)),
        quarantine=skips.quarantine(),
    )


def _base_ns(around: bytes) -> int:
    """What all times in the file count from; 0 in files that count from 1970 themselves."""
    match = _BASE.search(around)
    return (int64(int(match[1])) or 0) if match else 0


def _origin(around: bytes) -> Origin:
    job = _job(around)
    backend, version, schema = job.get("backend"), job.get("nccl_version"), _SCHEMA.search(around)
    return Origin(
        rank=int64(job.get("rank")),
        world_size=int64(job.get("world_size")),
        backend=printable(backend) if isinstance(backend, str) else None,
        library_version=f"NCCL {printable(version)}" if isinstance(version, str) and version != "unknown" else None,
        tool=f"torch.profiler, schema {int(schema[1])}" if schema else "torch.profiler",
    )


def _job(around: bytes) -> dict[str, object]:
    """distributedInfo, which may stand before or after the events, beside log lines that are not JSON."""
    for match in itertools.islice(_DISTRIBUTED.finditer(around), _MAX_JOBS):
        text = around[match.end() : match.end() + _LONGEST_JOB].decode("utf-8", "replace")
        try:
            job, _ = json.JSONDecoder(strict=False).raw_decode(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(job, dict):
            return job
    return {}


def _limits(kept: Kept, damage: str | None) -> Iterator[Limit]:
    """What this file cannot answer, of the questions that are asked of it."""
    if damage:
        message = f"{damage}: what came after is unknown, counts are lower bounds; export the trace again"
        yield Limit(code=LimitCode.TRUNCATED, message=message)
    if not kept.num_device_rows:
        yield Limit(
            code=LimitCode.NO_DEVICE_ROWS,
            message="no GPU activity was captured, so that no kernel can be counted; profile the CUDA activity as well "
            "(Gloo runs no kernels: its calls are the evidence)",
        )
    elif kept.operations and not kept.num_api_calls and not kept.launches:
        yield Limit(
            code=LimitCode.NO_LAUNCHES,
            message="no CUDA calls with correlation ids were captured, so that no kernel can be attributed to a range; "
            "profile the CPU beside CUDA, and keep cuda_runtime and cuda_driver events",
        )
    if kept.operations and not any(range_.kind is RangeKind.MARK for range_ in kept.ranges):
        yield Limit(
            code=LimitCode.NO_RANGES,
            message="no range of the user's was captured, so that kernels cannot be told apart by the part of the "
            "program; put torch.profiler.record_function around what is compared",
        )
    if kept.num_with_shared_ids:
        yield Limit(
            code=LimitCode.SHARED_IDS,
            message=f"{kept.num_with_shared_ids:,} kernels have correlation ids that more kernels than launches have, "
            "as where traces of several processes were merged and launches are missing: they are attributed to no "
            "range; give each process's own file",
        )
    if kept.num_marks_dropped:
        yield Limit(
            code=LimitCode.RANGES_DROPPED,
            message=f"of the ranges in which nothing communicated, the first {MAX_IDLE_MARKS:,} are kept and "
            f"{kept.num_marks_dropped:,} are not: counts of a range's instances are lower bounds",
        )
    told = [*(operation.metadata for operation in kept.operations), *(call.metadata for call in kept.calls)]
    if told and all(metadata is None or metadata.in_numel is None for metadata in told):
        yield Limit(
            code=LimitCode.NO_COUNTS,
            message="no counts and dtypes of collectives were captured: graph replays and calls outside of "
            "torch.distributed have none; torch 2.2 and later record them, for Gloo with record_shapes=True",
        )
