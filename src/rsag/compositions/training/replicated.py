"""Everything on every rank: data parallelism as it is taught, and the mistake that decomposing it invites."""

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


def keep_all(m: Recorder, full: View, stack: Stack) -> State:
    """Parameters and optimizer whole on every rank."""
    layers = tuple(shard(full, layer, stack.num_layers) for layer in range(stack.num_layers))
    optimizer = tuple(start_optimizer(m, layer, stack) for layer in layers)
    return State(parameters=layers, optimizer=optimizer, batch=load_batch(m, full, stack))


def ddp(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Each layer's AllReduce runs under the backward of the layers before it."""
    activations = Activations(m, state.batch)
    for parameters in state.parameters:
        activations.forward(parameters)
    gradients, reductions = [], []
    for parameters in reversed(state.parameters):
        gradient = m.allocate(stack.layer_numel, "gradient")
        activations.backward(gradient, parameters)
        reductions.append(m.all_reduce(gradient, op, start=True))
        gradients.append(gradient)
    for reduction in reductions:
        m.wait(reduction)
    _update_all(m, state, gradients[::-1])
    return tuple(gradients)


def gather_gradients(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """The shard is gathered as soon as it is there, so nothing of it is left: neither memory nor wire is saved."""
    activations = Activations(m, state.batch)
    for parameters in state.parameters:
        activations.forward(parameters)
    gradients = []
    for parameters in reversed(state.parameters):
        local = allocate_padded(m, stack, "gradient")
        activations.backward(local[: stack.layer_numel], parameters)
        pad(m, local, stack)
        mine = m.allocate(len(local) // m.world, "gradient")
        gathered = m.allocate(len(local), "gradient")
        m.reduce_scatter(mine, local, op)
        m.all_gather(gathered, mine)
        m.release(local, mine)
        gradients.append(gathered)
    _update_all(m, state, [gradient[: stack.layer_numel] for gradient in gradients[::-1]])
    return tuple(gradients)


def _update_all(m: Recorder, state: State, gradients: list[View]) -> None:
    for parameters, states, gradient in zip(state.parameters, state.optimizer, gradients):
        assert states is not None
        update(m, parameters, states, gradient)


DDP = TrainingStep(
    name="ddp",
    prepare=keep_all,
    run=ddp,
    summary="gradients AllReduced in place, everything replicated",
)
MISTAKE = TrainingStep(
    name="mistake",
    prepare=keep_all,
    run=gather_gradients,
    summary="gradients ReduceScattered and AllGathered at once, the update replicated",
)
