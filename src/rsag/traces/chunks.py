"""A file's bytes in chunks, decompressed where it is gzip, and never more of them than was allowed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rsag.errors import UsageError
from rsag.units import format_bytes

MAX_BYTES = 64 << 30
"""The largest trace that is read, decompressed: well above what torch.profiler can write and a browser open."""

MAX_RATIO = 200
"""The most that a gzip file may grow: traces grow 10 to 40 times, and deflate's own limit is 1032."""

_RATIO_FROM_BYTES = 256 << 20  # a small file may be as regular as it likes
_CHUNK_BYTES = 1 << 19
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's word for "with gzip's header and checksum"


def is_gzip(head: bytes) -> bool:
    return head.startswith(_GZIP_MAGIC)


def inflate_head(head: bytes, num_bytes: int) -> bytes:
    """The first bytes of a file as it was before it was compressed, given the first bytes as stored."""
    if not is_gzip(head):
        return head
    try:
        return zlib.decompressobj(_GZIP).decompress(head, num_bytes)
    except zlib.error:
        return b""


class Chunks:
    """A file's decompressed bytes, once through.

    Iterating ends where the bytes end, also where a gzip file is cut or damaged: `damage` then says how, and everything
    before it was given. Raises UsageError where there is more than `max_bytes`, or where a gzip file grows more than
    200 times and beyond 256 MiB.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        num_bytes = 0
        with self._path.open("rb") as file:
            compressed = is_gzip(file.read(len(_GZIP_MAGIC)))
            file.seek(0)
            for chunk in self._inflated(file) if compressed else iter(lambda: file.read(_CHUNK_BYTES), b""):
                num_bytes += len(chunk)
                self._refuse_too_much(num_bytes, file.tell() if compressed else None)
                yield chunk

    def _inflated(self, file: BinaryIO) -> Iterator[bytes]:
        inflate, data = zlib.decompressobj(_GZIP), b""
        while True:
            if inflate.eof:  # one file may be several, one after the other
                data = inflate.unused_data
                if len(data) < len(_GZIP_MAGIC):
                    data += file.read(_CHUNK_BYTES)
                data = data.lstrip(b"\0")  # padding, as tapes and some tools leave it
                if not is_gzip(data):
                    return
                inflate = zlib.decompressobj(_GZIP)
            else:
                data = inflate.unconsumed_tail or file.read(_CHUNK_BYTES)
                if not data:
                    self.damage = "the gzip file is cut"
                    return
            before = inflate.copy()
            try:
                chunk = inflate.decompress(data, _CHUNK_BYTES)
            except zlib.error as error:
                self.damage = f"the gzip file is damaged: {error}"
                yield from _up_to_the_damage(before, data)
                return
            if chunk:
                yield chunk

    def _refuse_too_much(self, num_bytes: int, stored_bytes: int | None) -> None:
        if num_bytes > self._max_bytes:
            raise UsageError(
                f"{self._path.name} is too large",
                got=f"more than {format_bytes(self._max_bytes)} decompressed",
                expected="at most that many; it is the limit max_bytes",
                do="profile fewer steps, or raise the limit if the file is no bomb",
            )
        if stored_bytes and num_bytes > _RATIO_FROM_BYTES and num_bytes > MAX_RATIO * stored_bytes:
            raise UsageError(
                f"{self._path.name} grows like no trace does",
                got=f"{format_bytes(num_bytes)} out of {format_bytes(stored_bytes)}",
                expected=f"at most {MAX_RATIO} times",
                do="decompress it yourself if it is no bomb",
            )


def _up_to_the_damage(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """What can be had of `data` before the byte that zlib stumbles over; a call that fails gives nothing at all."""
    try:
        for i in range(len(data)):
            if chunk := inflate.decompress(data[i : i + 1]):
                yield chunk
    except zlib.error:
        return
