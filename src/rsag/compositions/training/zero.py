"""ZeRO stages 1 and 2 (Rajbhandari et al. 2020, arXiv:1910.02054): optimizer state, then gradients, in shards.

Parameters stay whole on every rank and are gathered in place after each update.
"""

from __future__ import annotations

from rsag.compositions.slices import shard
from rsag.compositions.training.compute import (
    Activations,
    allocate_padded,
    load_batch,
    pad,
    start_optimizer,
    update,
)
from rsag.compositions.training.step import Stack, State, TrainingStep
from rsag.programs import Recorder, View


def keep_own_states(m: Recorder, full: View, stack: Stack) -> State:
    """Parameters whole, with room for equal shards; the optimizer's states of the rank's own shard."""
    layers = []
    for layer in range(stack.num_layers):
        padded = allocate_padded(m, stack, "parameter")
        m.copy(padded[: stack.layer_numel], shard(full, layer, stack.num_layers))
        pad(m, padded, stack)
        layers.append(padded)
    batch = load_batch(m, full, stack)
    m.release(full)
    optimizer = tuple(start_optimizer(m, shard(padded, m.rank, m.world), stack) for padded in layers)
    return State(parameters=tuple(layers), optimizer=optimizer, batch=batch)


def zero1(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Gradients are whole until they are scattered, each into its own slice: no extra memory, and none saved."""
    activations = _forward(m, state, stack)
    gradients = []
    for padded in reversed(state.parameters):
        gradient = allocate_padded(m, stack, "gradient")
        activations.backward(gradient[: stack.layer_numel], padded[: stack.layer_numel])
        pad(m, gradient, stack)
        gradients.append(gradient)
    shards = [shard(gradient, m.rank, m.world) for gradient in gradients]
    for gradient, mine in zip(gradients, shards):
        m.reduce_scatter(mine, gradient, op)
    _update_and_gather(m, state, shards[::-1])
    return tuple(gradients)


def zero2(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """A layer's gradients are scattered as soon as they are there, and only the shard is kept."""
    activations = _forward(m, state, stack)
    shards = []
    for padded in reversed(state.parameters):
        gradient = allocate_padded(m, stack, "gradient")
        activations.backward(gradient[: stack.layer_numel], padded[: stack.layer_numel])
        pad(m, gradient, stack)
        mine = m.allocate(len(gradient) // m.world, "gradient")
        m.reduce_scatter(mine, gradient, op)
        m.release(gradient)
        shards.append(mine)
    _update_and_gather(m, state, shards[::-1])
    return tuple(shards)


def _forward(m: Recorder, state: State, stack: Stack) -> Activations:
    activations = Activations(m, state.batch)
    for padded in state.parameters:
        activations.forward(padded[: stack.layer_numel])
    return activations


def _update_and_gather(m: Recorder, state: State, shards: list[View]) -> None:
    for padded, states, gradient in zip(state.parameters, state.optimizer, shards):
        assert states is not None
        mine = shard(padded, m.rank, m.world)
        update(m, mine, states, gradient)
        m.all_gather(padded, mine)


ZERO1 = TrainingStep(
    name="zero1",
    prepare=keep_own_states,
    run=zero1,
    summary="optimizer state in shards; gradients whole, scattered in place; parameters gathered",
)
ZERO2 = TrainingStep(
    name="zero2",
    prepare=keep_own_states,
    run=zero2,
    summary="gradients in shards too, scattered layer by layer during backward",
)
