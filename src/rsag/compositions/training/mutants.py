"""Training steps with a planted fault, each with the contract that it must be refuted against."""

from __future__ import annotations

from dataclasses import dataclass

from rsag.compositions.slices import shard
from rsag.compositions.training.compute import Activations, allocate_padded, keep_shards, pad, update
from rsag.compositions.training.replicated import keep_all
from rsag.compositions.training.step import Stack, State, TrainingStep
from rsag.compositions.training.zero import keep_own_states
from rsag.programs import Recorder, View
from rsag.records.proof import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMutant:
    """A training step and the contract it breaks."""

    step: TrainingStep
    breaks: Contract


def unreduced_gradient(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Reduces a copy of the last layer's gradient, and updates with the rank's own."""
    activations = Activations(m, state.batch)
    for parameters in state.parameters:
        activations.forward(parameters)
    gradients = []
    for layer in reversed(range(stack.num_layers)):
        gradient = m.allocate(stack.layer_numel, "gradient")
        activations.backward(gradient, state.parameters[layer])
        if layer == stack.num_layers - 1:
            bucket = m.allocate(stack.layer_numel)
            m.copy(bucket, gradient)
            m.all_reduce(bucket, op)
            m.release(bucket)
        else:
            m.all_reduce(gradient, op)
        states = state.optimizer[layer]
        assert states is not None
        update(m, state.parameters[layer], states, gradient)
        gradients.append(gradient)
    return tuple(gradients)


def gathered_before_the_update(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Other ranks get the parameters of the step before."""
    shards = _scattered(m, state, stack, op)
    for padded, states, gradient in zip(state.parameters, state.optimizer, shards):
        assert states is not None
        mine = shard(padded, m.rank, m.world)
        m.all_gather(padded, mine)
        update(m, mine, states, gradient)
    return shards


def neighbours_shard(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Updates the next rank's slice with its own gradient and state."""
    shards = _scattered(m, state, stack, op)
    for padded, states, gradient in zip(state.parameters, state.optimizer, shards):
        assert states is not None
        mine, wrong = shard(padded, m.rank, m.world), shard(padded, (m.rank + 1) % m.world, m.world)
        update(m, wrong, states, gradient)
        m.all_gather(padded, mine)
    return shards


def stale_prefetch(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """The first layer stays whole for the next step's forward, gathered before the update."""
    whole = state.buckets[0]
    shards = []
    activations = Activations(m, state.batch)
    for layer, mine in enumerate(state.parameters):
        gathered = whole if layer == 0 else m.allocate(len(mine) * m.world, "parameter")
        if layer > 0:
            m.all_gather(gathered, mine)
        activations.forward(gathered[: stack.layer_numel])
        if layer > 0:
            m.release(gathered)
    for mine in reversed(state.parameters):
        gathered = m.allocate(len(mine) * m.world, "parameter")
        m.all_gather(gathered, mine)
        shards.append(_reduced(m, activations, gathered, stack, op))
        m.release(gathered)
    m.all_gather(whole, state.parameters[0])
    for mine, states, gradient in zip(state.parameters, state.optimizer, shards[::-1]):
        assert states is not None
        update(m, mine, states, gradient)
    return tuple(shards)


def input_released_in_flight(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """The full gradient is released while its reduce-scatter may still read it."""
    activations = _forward(m, state, stack)
    shards = []
    for padded in reversed(state.parameters):
        gradient = allocate_padded(m, stack, "gradient")
        activations.backward(gradient[: stack.layer_numel], padded[: stack.layer_numel])
        pad(m, gradient, stack)
        mine = m.allocate(len(gradient) // m.world, "gradient")
        token = m.reduce_scatter(mine, gradient, op, start=True)
        m.release(gradient)
        m.wait(token)
        shards.append(mine)
    for padded, states, gradient in zip(state.parameters, state.optimizer, shards[::-1]):
        assert states is not None
        update(m, shard(padded, m.rank, m.world), states, gradient)
        m.all_gather(padded, shard(padded, m.rank, m.world))
    return tuple(shards)


def _keep_first_whole(m: Recorder, full: View, stack: Stack) -> State:
    state = keep_shards(m, full, stack)
    whole = m.allocate(len(state.parameters[0]) * m.world, "parameter")
    m.all_gather(whole, state.parameters[0])
    return State(
        parameters=state.parameters, optimizer=state.optimizer, batch=state.batch, sharded=True, buckets=(whole,)
    )


def _forward(m: Recorder, state: State, stack: Stack) -> Activations:
    activations = Activations(m, state.batch)
    for padded in state.parameters:
        activations.forward(padded[: stack.layer_numel])
    return activations


def _scattered(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """Forward and backward on whole parameters: the reduced gradients' own shards, in layer order."""
    activations = _forward(m, state, stack)
    return tuple([_reduced(m, activations, padded, stack, op) for padded in reversed(state.parameters)][::-1])


def _reduced(m: Recorder, activations: Activations, whole: View, stack: Stack, op: str) -> View:
    gradient = allocate_padded(m, stack, "gradient")
    activations.backward(gradient[: stack.layer_numel], whole[: stack.layer_numel])
    pad(m, gradient, stack)
    mine = m.allocate(len(gradient) // m.world, "gradient")
    m.reduce_scatter(mine, gradient, op)
    m.release(gradient)
    return mine


TRAINING_MUTANTS: tuple[TrainingMutant, ...] = tuple(
    TrainingMutant(
        step=TrainingStep(name=run.__name__, prepare=prepare, run=run, summary=(run.__doc__ or "").split("\n")[0]),
        breaks=breaks,
    )
    for prepare, run, breaks in (
        (keep_all, unreduced_gradient, Contract.RESULT),
        (keep_own_states, gathered_before_the_update, Contract.RESULT),
        (keep_own_states, neighbours_shard, Contract.RESULT),
        (_keep_first_whole, stale_prefetch, Contract.RESULT),
        (keep_own_states, input_released_in_flight, Contract.PROGRAM),
    )
)
