"""The compute that all training steps share, as `apply`: layers forward and backward, and the optimizer's update.

An apply is element by element, so element e of a gradient depends on elements e of its layer's parameters, of what came
into the layer and of what came back to it: enough for a stale or misplaced parameter to show wherever it was used, in
its own layer and in all that follow. A layer's activation therefore has as many elements as the layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from rsag.compositions.slices import shard
from rsag.compositions.training.step import Stack, State
from rsag.programs import IDENTITY, Recorder, View


class Activations:
    """What forward keeps for backward, released on the way back."""

    def __init__(self, m: Recorder, batch: View) -> None:
        self._m = m
        self._inputs = [batch]
        self._upstream: View | None = None

    def forward(self, parameters: View) -> None:
        """The next layer, on what the layer before it gave."""
        out = self._m.allocate(len(parameters), "activation")
        self._m.apply("layer", out, parameters, self._inputs[-1])
        self._inputs.append(out)

    def backward(self, gradient: View, parameters: View) -> None:
        """The last layer not gone back through yet: writes its `gradient`."""
        m = self._m
        upstream = self._upstream
        if upstream is None:
            upstream = m.allocate(len(gradient), "activation")
            m.apply("loss", upstream, self._inputs[-1])
        m.release(self._inputs.pop())
        came_in = self._inputs[-1]
        m.apply("gradient", gradient, parameters, came_in, upstream)
        if len(self._inputs) > 1:
            self._upstream = m.allocate(len(gradient), "activation")
            m.apply("back", self._upstream, parameters, came_in, upstream)
        m.release(upstream)


def load_batch(m: Recorder, full: View, stack: Stack) -> View:
    """The rank's own batch: what makes its gradients differ from the others'."""
    batch = m.allocate(stack.layer_numel, "activation")
    m.apply(f"batch {m.rank}", batch, shard(full, 0, stack.num_layers))
    return batch


def start_optimizer(m: Recorder, parameters: View, stack: Stack) -> tuple[View, ...]:
    """The optimizer's states of these parameters after earlier steps: whatever they are, each element has its own."""
    states = tuple(m.allocate(len(parameters), "optimizer") for _ in range(stack.num_states))
    for number, state in enumerate(states):
        m.apply(f"state {number} so far", state, parameters)
    return states


def update(m: Recorder, parameters: View, states: Sequence[View], gradient: View) -> None:
    """One step of an optimizer that treats each element by itself, as Adam does, in place."""
    for number, state in enumerate(states):
        m.apply(f"state {number}", state, state, gradient)
    m.apply("update", parameters, parameters, *states, gradient)


def allocate_padded(m: Recorder, stack: Stack, role: str) -> View:
    """A layer's buffer with room for equal shards."""
    return m.allocate(stack.layout(m.world).padded_numel, role)


def pad(m: Recorder, padded: View, stack: Stack) -> None:
    """Fill what lies behind a layer's elements with the operator's identity."""
    if len(padded) > stack.layer_numel:
        m.fill(padded[stack.layer_numel :], IDENTITY)


def keep_shards(m: Recorder, full: View, stack: Stack) -> State:
    """Every layer's parameters cut into shards, of which the rank keeps its own; the full ones are given back."""
    layout = stack.layout(m.world)
    start, stop = layout.valid_range(m.rank)
    shards = []
    for layer in range(stack.num_layers):
        mine = m.allocate(layout.shard_numel, "parameter")
        m.copy(mine[: stop - start], shard(full, layer, stack.num_layers)[start:stop])
        if stop - start < len(mine):
            m.fill(mine[stop - start :], IDENTITY)
        shards.append(mine)
    batch = load_batch(m, full, stack)
    m.release(full)
    optimizer = tuple(start_optimizer(m, mine, stack) for mine in shards)
    return State(parameters=tuple(shards), optimizer=optimizer, batch=batch, sharded=True)
