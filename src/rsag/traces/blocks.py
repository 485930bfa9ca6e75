"""A Chrome trace's events, block by block: never the whole file, and whatever is broken costs itself only.

A block is cut where one event ends and the next begins, and is decoded at once. Where that fails, its events are
gone through one at a time: what can be repaired without guessing is (control characters, bad UTF-8, NaN), and the
rest is skipped up to where the next event begins.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from rsag.errors import UsageError
from rsag.traces.skips import Skips

_START = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[|\A(?:\xef\xbb\xbf)?\s*\[')
_LONGEST_START = 256

# Between two events. Kineto's own layout is surely between two events; what other writers leave may be inside of one.
_KINETO = "\n  },\n  {"
_KINETO_BYTES = _KINETO.encode()
_KINETO_BOUNDARY = re.compile(re.escape(_KINETO))
_ANY_BOUNDARY = re.compile(r"\}\s*,\s*\{")
_ANY_BOUNDARY_BYTES = re.compile(_ANY_BOUNDARY.pattern.encode())
_CLOSE = re.compile(r"\}\s*\]")
_BETWEEN = re.compile(r"[\s,]*")

_CONTROL = re.compile(r"[\x00-\x1f]")
_NOT_A_NUMBER = re.compile(r"(?<=[:\[,\s])[-+]?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_BOUNDS = json.JSONDecoder(strict=False, parse_float=str, parse_int=str)  # int() refuses very long numbers
_LONGEST_TOKEN = 16  # of what JSON allows outside of strings, numbers apart
_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)

_MAX_AGAIN = 8  # broken events that begin within what was looked at for another broken one
_MAX_LOOKED_BYTES = 4 << 30  # for all broken events of a body: json counts the lines before each
_MAX_SKIPPED = 100_000  # where most are: each costs much more time than an event that can be read
_MAX_HEAD_BYTES = 64 << 20
_MAX_EVENT_BYTES = 16 << 20
_MAX_TAIL_BYTES = 4 << 20


class Event(msgspec.Struct, gc=False):
    """One entry of traceEvents; timestamps, which a double cannot hold, arguments and ids stay as they are written."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")


_NO_EVENT = "no event: broken JSON, a field of another type, or cut off"
_GIVEN_UP = "given up, with what follows up to where it can be read again: broken in too many places"

Offer = Callable[[int, bytes], bool]
"""Whether somebody else reads the block at this offset."""

_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


@dataclass(slots=True, kw_only=True)
class Block:
    """Events that follow each other, and where each of them begins in the decompressed file."""

    events: list[Event]
    offset: int
    body: bytes
    starts: list[int] | None = None  # in the body

    def offset_of(self, index: int) -> int:
        """Found when it is first asked for, since that takes longer than decoding the block."""
        if self.starts is None:
            self.starts = _starts(self.body.decode("latin-1"))
        return self.offset + self.starts[index]


@dataclass(slots=True)
class EventReader:
    """The events in a stream of chunks, with what stands before and after them.

    Once `blocks` is exhausted, `head` and `tail` are the bytes around the events (at most 4 MiB of the tail), and
    `complete` says whether the list of events was closed. All events are counted in `skips`, with those that cannot be
    read.
    """

    skips: Skips
    head: bytes = b""
    tail: bytes = b""
    complete: bool = False
    _offset: int = field(default=0, init=False)  # of the bytes that are looked at next

    def blocks(self, chunks: Iterable[bytes], offer: Offer | None = None) -> Iterator[Block]:
        """All blocks but those that `offer` takes, which are read with `lone_block`.

        Raises UsageError where the file has no list of events, or hardly any in it that can be read.
        """
        chunks = iter(chunks)
        text = b""
        for chunk in itertools.chain((self._find_start(chunks),), chunks):
            if self.complete:
                self.tail = (self.tail + chunk)[:_MAX_TAIL_BYTES]
                continue
            text += chunk
            if boundary := _last_boundary(text):
                end, begin = boundary
                if offer and _stands_alone(text, end) and offer(self._offset, text[:end]):
                    text = self._rest(text, begin)
                    continue
                block, num_read = self._read(text[:end])
                yield block
                text = self._rest(text, begin if num_read == end else num_read)
            elif len(text) > _MAX_EVENT_BYTES:
                block, num_read = self._one_by_one(text, is_last=False)
                yield block
                if not num_read:
                    self._skip(0, f"no end of an event in {_MAX_EVENT_BYTES >> 20} MiB")
                text = self._rest(text, num_read or len(text))
        if not self.complete:
            block, num_read = self._one_by_one(text, is_last=True)
            yield block
            self._rest(text, num_read)

    def lone_block(self, offset: int, body: bytes) -> Block:
        """A block out of the middle of a file, which begins and ends with an event."""
        self._offset = offset
        return self._read(body, is_last=True)[0]

    def _find_start(self, chunks: Iterator[bytes]) -> bytes:
        text = b""
        for chunk in chunks:
            searched, text = max(0, len(text) - _LONGEST_START), text + chunk
            if start := _START.search(text, searched):
                self.head, self._offset = text[: start.start()], start.end()
                return text[start.end() :]
            if len(text) > _MAX_HEAD_BYTES:
                break
        raise UsageError(
            "no events in this file",
            got=repr(text[:40].decode("utf-8", "replace")) if text else "an empty file",
            expected='"traceEvents": [...], or a list of events',
            do="export it with torch.profiler's export_chrome_trace or tensorboard_trace_handler",
        )

    def _rest(self, text: bytes, num_read: int) -> bytes:
        """What is left of the text; once the list of events is closed, that is the tail."""
        self._offset += num_read
        if self.complete:
            self.tail = text[num_read:][:_MAX_TAIL_BYTES]
            return b""
        return text[num_read:]

    def _read(self, body: bytes, is_last: bool = False) -> tuple[Block, int]:
        """The events in a body that ends where an event seems to end, and how many of its bytes they are."""
        try:
            events = _EVENTS.decode(b"[%b]" % body)
        except (msgspec.DecodeError, RecursionError):
            return self._one_by_one(body, is_last)
        self.skips.seen(len(events))
        return Block(events=events, offset=self._offset, body=body), len(body)

    def _one_by_one(self, body: bytes, is_last: bool) -> tuple[Block, int]:
        """The same, event by event; what is cut at the end of the body is left, unless nothing follows."""
        chars = body.decode("latin-1")  # one character for each byte, whatever the bytes are
        boundary = _KINETO_BOUNDARY if _KINETO in chars else _ANY_BOUNDARY
        broken = _Broken((boundary, _CLOSE) if is_last else (boundary,), chars)
        events, starts, at = [], [], _after(_BETWEEN, chars, 0)
        while at < len(chars):
            if chars[at] == "]":
                self.complete, at = True, at + 1
                break
            end, looked = _end_of_event(chars, at)
            if end is None and not is_last:
                break
            reason = _NO_EVENT
            if not end:
                end, reason = broken.end(at, looked)
            event = _decode(body[at:end]) if reason is _NO_EVENT else None
            if event is None:
                self._skip(at, reason)
            else:
                self.skips.seen()
                events.append(event)
                starts.append(at)
            at = _after(_BETWEEN, chars, end)
        return Block(events=events, offset=self._offset, body=body, starts=starts), at

    def _skip(self, at: int, reason: str) -> None:
        self.skips.seen()
        self.skips.skip(self._offset + at, reason)
        num_skipped, num_seen = self.skips.num_skipped, self.skips.num_seen
        if num_skipped > _MAX_SKIPPED and 2 * num_skipped > num_seen:
            raise UsageError(
                "hardly any event in this file can be read",
                got=f"{num_skipped:,} of the first {num_seen:,} that cannot",
                do="export the trace again",
            )


def _last_boundary(text: bytes) -> tuple[int, int] | None:
    """Where the last event that seems whole ends, and where the next begins; None where there is no such place."""
    if (at := text.rfind(_KINETO_BYTES)) >= 0:
        return at + len("\n  }"), at + len("\n  },\n  ")
    for begin in (max(0, len(text) - (1 << 16)), 0):
        if matches := list(_ANY_BOUNDARY_BYTES.finditer(text, begin)):
            return matches[-1].start() + 1, matches[-1].end() - 1
    return None


def _stands_alone(text: bytes, end: int) -> bool:
    """Whether what goes up to `end` is in Kineto's own layout, ends with an event and does not close the list."""
    return text.startswith(_KINETO_BYTES, end - len("\n  }")) and text.find(b"\n  ]", 0, end) < 0


def _starts(chars: str) -> list[int]:
    """Where each event of a list without errors begins, however deep they are."""
    starts, depth = [], 0
    for token in _STRUCTURE.finditer(chars):
        if token[0] in ("{", "["):
            if not depth:
                starts.append(token.start())
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
    return starts


def _end_of_event(chars: str, at: int) -> tuple[int | None, int]:
    """Where what begins here ends, and how far was looked: 0 if it is broken, None if the text may be cut before."""
    try:
        end = _BOUNDS.raw_decode(chars, at)[1]
        return end, end
    except json.JSONDecodeError as error:
        is_cut = error.msg.startswith("Unterminated") or error.pos > len(chars) - _LONGEST_TOKEN
        return (None, len(chars)) if is_cut else (0, error.pos)
    except RecursionError:
        return 0, len(chars)


@dataclass(slots=True)
class _Broken:
    """Where broken events must have ended: where another begins or the list is closed.

    What seems to begin an event may be nested in the broken one and be broken at the same place, over and over. After a
    few of those nothing before that place is tried, so that no text is looked at more than ten times.
    """

    endings: tuple[re.Pattern[str], ...]
    chars: str
    _looked: int = 0
    _num_again: int = 0
    _num: int = 0

    def end(self, at: int, looked: int) -> tuple[int, str]:
        """Where the event that begins at `at` ended, for which all up to `looked` was read, and why it is none."""
        self._num_again = self._num_again + 1 if at < self._looked else 0
        self._looked = max(self._looked, looked)
        self._num += 1
        if self._num * len(self.chars) > _MAX_LOOKED_BYTES:
            return len(self.chars), _GIVEN_UP
        if self._num_again > _MAX_AGAIN:
            return self._next(self._looked), _GIVEN_UP
        return self._next(at), _NO_EVENT

    def _next(self, at: int) -> int:
        for pattern in self.endings:
            if match := pattern.search(self.chars, at):
                return self.chars.index("}", match.start()) + 1
        return len(self.chars)


def _after(pattern: re.Pattern[str], chars: str, at: int) -> int:
    match = pattern.match(chars, at)
    return match.end() if match else at


def _decode(event: bytes) -> Event | None:
    """One event, repaired if that takes no guess; None if it cannot be read."""
    try:
        return _EVENT.decode(event)
    except (msgspec.DecodeError, RecursionError):
        pass
    chars = _CONTROL.sub(" ", event.decode("utf-8", "replace"))
    try:
        return _EVENT.decode(_NOT_A_NUMBER.sub("null", chars).encode())
    except (msgspec.DecodeError, RecursionError):
        return None
