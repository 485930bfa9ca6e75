"""torch's DistributedDataParallel and ZeroRedundancyOptimizer with the buffers they hold (torch 2.11, reducer.cpp).

The reducer keeps buckets as large as all gradients, here one per layer, as where layers exceed `bucket_cap_mb`. By
default gradients are copied in and out of them; with `gradient_as_bucket_view` the buckets are the gradients, and only
what autograd has just made is copied in. ZeroRedundancyOptimizer gives whole layers to ranks, largest first, and lets
DDP AllReduce all gradients: it shards the optimizer's state alone, and broadcasts each layer from its owner.
"""

from __future__ import annotations

from dataclasses import replace

from rsag.compositions.slices import shard
from rsag.compositions.training.compute import Activations, load_batch, start_optimizer, update
from rsag.compositions.training.step import Stack, State, TrainingStep
from rsag.programs import Recorder, View


def with_buckets(m: Recorder, full: View, stack: Stack) -> State:
    return _keep(m, full, stack, role="staging", owned=range(stack.num_layers))


def with_bucket_views(m: Recorder, full: View, stack: Stack) -> State:
    return _keep(m, full, stack, role="gradient", owned=range(stack.num_layers))


def with_own_layers(m: Recorder, full: View, stack: Stack) -> State:
    return _keep(m, full, stack, role="staging", owned=range(m.rank, stack.num_layers, m.world))


def _keep(m: Recorder, full: View, stack: Stack, *, role: str, owned: range) -> State:
    layers = tuple(shard(full, layer, stack.num_layers) for layer in range(stack.num_layers))
    state = State(
        parameters=layers,
        optimizer=tuple(start_optimizer(m, one, stack) if layer in owned else None for layer, one in enumerate(layers)),
        batch=load_batch(m, full, stack),
    )
    return replace(state, buckets=tuple(m.allocate(stack.layer_numel, role) for _ in layers))


def copied_gradients(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """The default: gradients beside their buckets, and the whole lot twice."""
    gradients = _backward(m, state, stack, op)
    for gradient, bucket in zip(gradients, state.buckets):
        m.copy(gradient, bucket)
    for layer, states in enumerate(state.optimizer):
        if states is not None:
            update(m, state.parameters[layer], states, gradients[layer])
    return gradients


def viewed_gradients(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """`gradient_as_bucket_view=True`: nothing is left to release, the buckets stay."""
    _backward(m, state, stack, op, keep=False)
    for parameters, states, bucket in zip(state.parameters, state.optimizer, state.buckets):
        assert states is not None
        update(m, parameters, states, bucket)
    return ()


def owned_layers(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
    """ZeroRedundancyOptimizer on top of the default."""
    gradients = copied_gradients(m, state, stack, op)
    for layer, parameters in enumerate(state.parameters):
        m.broadcast(parameters, root=layer % m.world)
    return gradients


def _backward(m: Recorder, state: State, stack: Stack, op: str, *, keep: bool = True) -> tuple[View, ...]:
    """Forward and backward, until the buckets hold the reduced gradients; the ranks' own, in layer order, if kept."""
    activations = Activations(m, state.batch)
    for parameters in state.parameters:
        activations.forward(parameters)
    gradients, reductions = [], []
    for parameters, bucket in zip(reversed(state.parameters), reversed(state.buckets)):
        gradient = m.allocate(stack.layer_numel, "gradient")
        activations.backward(gradient, parameters)
        m.copy(bucket, gradient)
        reductions.append(m.all_reduce(bucket, op, start=True))
        if keep:
            gradients.append(gradient)
        else:
            m.release(gradient)
    for reduction in reductions:
        m.wait(reduction)
    return tuple(reversed(gradients))


TORCH_DDP = TrainingStep(
    name="torch_ddp",
    prepare=with_buckets,
    run=copied_gradients,
    summary="DistributedDataParallel: gradients copied into buckets and back",
)
TORCH_DDP_VIEWS = TrainingStep(
    name="torch_ddp_views",
    prepare=with_bucket_views,
    run=viewed_gradients,
    summary="the same with gradient_as_bucket_view=True",
)
TORCH_ZERO = TrainingStep(
    name="torch_zero",
    prepare=with_own_layers,
    run=owned_layers,
    summary="DistributedDataParallel and ZeroRedundancyOptimizer: whole layers owned, broadcast after the update",
)
