"""What NCCL said it chose, set beside each time: unlike protocols of two arms are a reason to know of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rsag.records.latency import ArmRole, LatencyRow, Reason, ReasonCode
from rsag.records.protocol import Choice, Protocols


def with_protocols(rows: Sequence[LatencyRow], protocols: Protocols) -> tuple[LatencyRow, ...]:
    """The rows with the library's choices for their calls, and a reason where they are not the direct arm's."""
    direct = {(row.bytes, row.buffers): protocols.of(row.bytes, row) for row in rows if row.role is ArmRole.DIRECT}
    return tuple(_with(row, protocols.of(row.bytes, row), direct.get((row.bytes, row.buffers), ())) for row in rows)


def _with(row: LatencyRow, own: Sequence[Choice], direct: Sequence[Choice]) -> LatencyRow:
    reasons = row.reasons
    if row.role is ArmRole.CANDIDATE and own and direct and _kinds(own) != _kinds(direct):
        message = f"by NCCL's own log {_say(own)}, against {_say(direct)}"
        reasons = (*reasons, Reason(code=ReasonCode.PROTOCOLS_DIFFER, message=message))
    return dataclasses.replace(row, protocols=tuple(map(str, own)), reasons=reasons)


def _kinds(choices: Sequence[Choice]) -> set[tuple[str, ...]]:
    return {choice.how for choice in choices}


def _say(choices: Sequence[Choice]) -> str:
    return ", ".join(dict.fromkeys(map(str, choices)))
