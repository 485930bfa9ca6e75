"""Preloaded, this lets the fork server fork twice and no more."""

from __future__ import annotations

import errno
import os

_fork, _left = os.fork, [None, None]


def fork() -> int:
    if not _left:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    _left.pop()
    return _fork()


os.fork = fork
