"""What is known of a communication kernel, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ClaimAbout(str, Enum):
    COLLECTIVE = "collective"
    OPERATOR = "operator"  # the reduction operator
    DTYPE = "dtype"
    ALGORITHM = "algorithm"  # ring, tree, NVLS, ...
    PROTOCOL = "protocol"  # LL, LL128, SIMPLE
    METHOD = "method"  # how a kernel on mapped memory moves data: by loads, stores, multicast


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One thing said of a kernel: `value` with what it rests on, or None with the reason why it cannot be said."""

    about: ClaimAbout
    value: str | None
    reason: str
