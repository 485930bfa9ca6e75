"""Whether a library's log is of the run that a capture shows: another run's log is no word on it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rsag.records.protocol import Choice
from rsag.traces.events import Capture, Origin

_RELEASE = re.compile(r"\d+(?:\.\d+)+")


def choices_for(capture: Capture, captures: Sequence[Capture]) -> list[Choice]:
    """The choices of all logs that can be of the run of `capture`."""
    return [choice for log in captures if not _differences(log.origin, capture.origin) for choice in log.choices]


def unlike_logs(captures: Sequence[Capture]) -> tuple[str, ...]:
    """A note for each log that is not used for some capture, with what differs."""
    return tuple(dict.fromkeys(_notes(captures)))


def _notes(captures: Sequence[Capture]) -> Iterator[str]:
    for log in captures:
        for capture in captures:
            differences = _differences(log.origin, capture.origin) if log.choices else []
            if differences:
                yield f"{log.source} is the log of another run and is not used: {', '.join(differences)}"


def _differences(log: Origin, capture: Origin) -> list[str]:
    """What both say, and differently; the release counts of a version, not the CUDA that it was built for."""
    found = []
    versions = [_RELEASE.search(origin.library_version or "") for origin in (log, capture)]
    if all(versions) and len({version[0] for version in versions if version}) > 1:
        found.append(f"version {log.library_version} against {capture.library_version}")
    sizes = (log.world_size, capture.world_size)
    if None not in sizes and sizes[0] != sizes[1]:
        found.append(f"{sizes[0]} ranks against {sizes[1]}")
    return found
