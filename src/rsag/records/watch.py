"""A rank's rows while they are being written."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

POLL_S = 0.25


@contextlib.contextmanager
def watched(path: Path, watch: Callable[[Mapping[str, object]], None], poll_s: float = POLL_S) -> Iterator[None]:
    """Inside, `watch` is given each whole row of `path` from a thread; what was written at the end is not missed.

    A line that is no JSON is left to whoever reads the file strictly.
    """
    done = threading.Event()

    def follow() -> None:
        position, rest = 0, b""
        while True:
            last = done.wait(poll_s)
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(position)
                *lines, rest = (rest + file.read()).split(b"\n")
                position = file.tell()
                for line in lines:
                    with contextlib.suppress(ValueError):
                        watch(json.loads(line))
            if last:
                return

    thread = threading.Thread(target=follow, name="rsag-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
