"""What can go wrong, each kind with the exit code of the command that meets it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    REFUTED = 1  # refuted, failed, or a gate that was asked for
    WRONG_USE = 2
    NO_ANSWER = 3  # inconclusive or invalid where an answer was required
    RUN_FAILED = 4  # a rank died, a deadline passed


class RsagError(Exception):
    """A failure that says what failed, what was got, what was expected and what to do.

    The parts that are given are joined into one message; `exit_code` is what the command line ends with.
    """

    exit_code = ExitCode.WRONG_USE

    def __init__(self, what: str, *, got: object = None, expected: object = None, do: str | None = None) -> None:
        self.what, self.got, self.expected, self.do = what, got, expected, do
        parts = [what]
        if got is not None:
            parts.append(f"got {got}")
        if expected is not None:
            parts.append(f"expected {expected}")
        if do is not None:
            parts.append(do)
        super().__init__("; ".join(parts))


class UsageError(RsagError):
    """The request itself cannot be carried out: an unknown name, an impossible size, an unusable path."""


class RecordError(RsagError):
    """A file of a run directory cannot be read: corrupt, truncated, of another schema or version."""


class ProgramError(RsagError):
    """A composition broke a rule that needs no other rank to see: a shape, a write to a peer, a release of a loan."""

    exit_code = ExitCode.REFUTED


class AgreementError(RsagError):
    """Ranks are about to issue one collective with different operator, dtype or size."""

    exit_code = ExitCode.REFUTED


class UnsupportedError(RsagError):
    """The backend, dtype or tensor layout cannot do what was asked."""


class RunFailedError(RsagError):
    """The run itself failed: a rank died, a deadline passed, a disk was full. Partial records are kept."""

    exit_code = ExitCode.RUN_FAILED


def unknown_name(kind: str, got: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a list: with the nearest names first, else all of them."""
    names = list(known)
    near = difflib.get_close_matches(got, names, n=3, cutoff=0.5)
    do = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"unknown {kind}", got=repr(got), do=do)
