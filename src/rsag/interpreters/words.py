"""A ring program in NCCL's own primitive words (src/device/primitives.h), read off its data flow.

NCCL names one primitive after all that happens to a chunk between its arrival and its next departure, so a word spans
two sendrecvs: it begins with what one of them receives and ends with what the next one sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.collectives import Kind
from rsag.programs import Instruction, Local, LocalKind, Program, Start, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One primitive call: `recv-reduce-send` and its like.

    `step` counts the program's sendrecvs from 0: the one that receives, or the one that sends if nothing is received.
    """

    name: str
    step: int
    received: View | None
    sent: View | None


def words(program: Program) -> tuple[Word, ...]:
    """The primitives that `program`'s sendrecvs amount to, in order; none where it has none that moves an element.

    reduce: what arrived is combined. copy: it, or what it was combined into, is in the result and stays there. send:
    the next sendrecv forwards it. A plain arrival in the result is a `recv`; a send of what did not just arrive is a
    `send`, or a `copy-send` where the rank's own contribution was copied to the result first.
    """
    code = program.code
    steps = sendrecvs(program)
    ends = [position for position, _ in steps[1:]] + [len(code)]
    found: list[Word] = []
    carried: list[View] = []
    for step, ((position, start), end) in enumerate(zip(steps, ends)):
        if start.inp and not _touches(start.inp, carried):
            name = "copy-send" if _keeps_own(program, position, start.inp) else "send"
            found.append(Word(name=name, step=step, received=None, sent=start.inp))
        carried = []
        if start.out:
            reduced, carried = _follow(start.out, code[position + 1 : end])
            following = steps[step + 1][1].inp if step + 1 < len(steps) else None
            sent = following if following and _touches(following, carried) else None
            stays = any(_stays(place, program.result, code[end:]) for place in carried)
            name = _name(reduced=reduced, stays=stays, sent=sent is not None)
            found.append(Word(name=name, step=step, received=start.out, sent=sent))
    return tuple(found)


def count_words(program: Program) -> dict[str, int]:
    """How often each primitive occurs in `program`, in order of first use."""
    return dict(Counter(word.name for word in words(program)))


def sendrecvs(program: Program) -> list[tuple[int, Start]]:
    """The sendrecvs of `program` that move anything, with their positions in its code."""
    return [
        (position, step)
        for position, step in enumerate(program.code)
        if isinstance(step, Start) and step.kind is Kind.SENDRECV and (step.inp or step.out)
    ]


def _name(*, reduced: bool, stays: bool, sent: bool) -> str:
    if not reduced and not sent:
        return "recv"  # a plain arrival needs no copy: it lands where it belongs
    parts = (("recv", True), ("reduce", reduced), ("copy", stays), ("send", sent))
    return "-".join(part for part, holds in parts if holds)


def _follow(received: View, code: Sequence[Instruction]) -> tuple[bool, list[View]]:
    """Whether local work in `code` combines what is in `received`, and all the places where that is afterwards."""
    reduced, places = False, [received]
    for step in code:
        if not isinstance(step, Local):
            continue
        combined = step.kind is LocalKind.COMBINE and _touches(step.dst, places)
        if combined or any(_touches(view, places) for view in step.src):
            reduced = reduced or step.kind is LocalKind.COMBINE
            places.append(step.dst)
        else:
            places = [place for place in places if not _touches(step.dst, [place])]
    return reduced, places


def _stays(place: View, result: View, later: Sequence[Instruction]) -> bool:
    """Whether `place` is in the result and nothing writes to it any more."""
    return _touches(place, [result]) and not any(_touches(view, [place]) for view in map(_written, later) if view)


def _keeps_own(program: Program, position: int, sent: View) -> bool:
    """Whether what is sent at `position` is the rank's own contribution, which a copy has put into the result."""
    for index, step in enumerate(program.code[:position]):
        if not isinstance(step, Local) or step.kind is not LocalKind.COPY or step.src[0].buffer != program.input.buffer:
            continue
        if _touches(sent, [step.dst, step.src[0]]) and _stays(step.dst, program.result, program.code[index + 1 :]):
            return True
    return False


def _written(step: Instruction) -> View | None:
    if isinstance(step, Local):
        return step.dst
    return step.out if isinstance(step, Start) else None


def _touches(view: View, places: Sequence[View]) -> bool:
    return any(
        view.buffer == place.buffer and view.start < place.stop and place.start < view.stop
        for place in places
        if view.rank == place.rank
    )
