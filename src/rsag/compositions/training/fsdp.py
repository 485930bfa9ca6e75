"""Parameters in shards too (ZeRO stage 3; Zhao et al. 2023, arXiv:2304.11277): whole only while a layer computes.

No prefetch and no copies: the least that the idea needs. What torch adds is in `fully_shard`.
"""

from __future__ import annotations

from rsag.compositions.training.compute import Activations, allocate_padded, keep_shards, pad, update
from rsag.compositions.training.step import Stack, State, TrainingStep
from rsag.programs import Recorder, View


def fsdp(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Gathered for forward, released, gathered again for backward."""
    activations = Activations(m, state.batch)
    for mine in state.parameters:
        whole = _gather(m, mine)
        activations.forward(whole[: stack.layer_numel])
        m.release(whole)
    shards = [_backward(m, activations, _gather(m, mine), stack, op) for mine in reversed(state.parameters)]
    return _update(m, state, shards)


def fsdp_kept(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Not resharded after forward: gathered once, and whole until backward has been through."""
    activations = Activations(m, state.batch)
    kept = []
    for mine in state.parameters:
        kept.append(_gather(m, mine))
        activations.forward(kept[-1][: stack.layer_numel])
    shards = [_backward(m, activations, whole, stack, op) for whole in reversed(kept)]
    return _update(m, state, shards)


def _gather(m: Recorder, mine: View) -> View:
    whole = m.allocate(len(mine) * m.world, "parameter")
    m.all_gather(whole, mine)
    return whole


def _backward(m: Recorder, activations: Activations, whole: View, stack: Stack, op: str) -> View:
    """The reduced gradient's own shard; the parameters and the full gradient are gone."""
    gradient = allocate_padded(m, stack, "gradient")
    activations.backward(gradient[: stack.layer_numel], whole[: stack.layer_numel])
    m.release(whole)
    pad(m, gradient, stack)
    mine = m.allocate(len(gradient) // m.world, "gradient")
    m.reduce_scatter(mine, gradient, op)
    m.release(gradient)
    return mine


def _update(m: Recorder, state: State, shards: list[View]) -> tuple[View, ...]:
    for mine, states, gradient in zip(state.parameters, state.optimizer, shards[::-1]):
        assert states is not None
        update(m, mine, states, gradient)
    return tuple(shards)


FSDP = TrainingStep(
    name="fsdp",
    prepare=keep_shards,
    run=fsdp,
    summary="parameters in shards too, each layer gathered for forward and again for backward",
)
FSDP_KEPT = TrainingStep(
    name="fsdp_kept",
    prepare=keep_shards,
    run=fsdp_kept,
    summary="the same, not resharded after forward",
)
