"""What ranks observe of a contract, and how it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

SENTINEL = -7
"""What an output holds before a call, so that it shows whether the call wrote it: no contract has such a sum."""


class ContractOutcome(str, Enum):
    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"  # the question does not arise here, or the backend cannot do it


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one rank saw: tensors element by element, and single facts. It says nothing of right or wrong.

    `unsupported` says why the contract was not tried.
    """

    kind: Literal["observation"] = "observation"
    contract: str
    values: dict[str, tuple[int | float, ...]] = field(default_factory=dict)
    facts: dict[str, str | int | float | bool] = field(default_factory=dict)
    unsupported: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRow:
    """One contract on one rank, judged."""

    contract: str
    rank: int
    outcome: ContractOutcome
    expected: str
    got: str
    reason: str
