"""torch.distributed.fsdp.fully_shard with the buffers it holds (torch 2.11, distributed/fsdp/_fully_shard).

What it adds to the idea: a layer is gathered into a flat buffer and copied out into parameters; in forward the flat
buffer lives until the next layer's gather is issued, so that this copy-out overlaps that gather; in backward the layer
before is gathered while this one computes; gradients are copied into a reduce-scatter input, which lives until the next
layer's gradients are there. Collectives run on streams of their own: each is started here, and waited for where torch
waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rsag.compositions.training.compute import Activations, allocate_padded, keep_shards, pad, update
from rsag.compositions.training.step import Stack, State, TrainingStep
from rsag.programs import Recorder, View


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyShard:
    """The settings that memory depends on, with torch's defaults.

    `num_kept`: the last layers are not resharded after forward (`reshard_after_forward=False`; torch's default for a
    root with parameters of its own). `num_prefetched`: layers gathered ahead in backward (`set_modules_to_
    backward_prefetch`). `num_inputs`: reduce-scatter inputs alive at once (`set_reduce_scatter_max_input_buffers`).
    """

    num_kept: int = 0
    num_prefetched: int = 1
    num_inputs: int = 1


Reduction = tuple[int | None, View]
"""A started reduce-scatter and its input."""


class _Step:
    def __init__(self, m: Recorder, state: State, stack: Stack, op: str, settings: FullyShard) -> None:
        self.m, self.state, self.stack, self.op, self.settings = m, state, stack, op, settings
        self.gathers: dict[int, tuple[int | None, View]] = {}
        self.whole: dict[int, View] = {}
        self.reductions: list[Reduction] = []
        self.shards: dict[int, View] = {}

    def run(self) -> tuple[View, ...]:
        activations = Activations(self.m, self.state.batch)
        layers = range(self.stack.num_layers)
        self._forward(activations)
        for layer in reversed(layers):
            self._gather(layer)
            flat = self._copy_out(layer)
            if flat is not None:
                self.m.release(flat)
            for ahead in range(layer - 1, max(layer - 1 - self.settings.num_prefetched, -1), -1):
                self._gather(ahead)
            self._backward(activations, layer)
        self._finish_reductions(keep=0)
        for layer in layers:
            states = self.state.optimizer[layer]
            assert states is not None
            update(self.m, self.state.parameters[layer], states, self.shards[layer])
        return tuple(self.shards[layer] for layer in reversed(layers))

    def _forward(self, activations: Activations) -> None:
        held: View | None = None
        for layer in range(self.stack.num_layers):
            self._gather(layer)
            if held is not None:
                self.m.release(held)
            held = self._copy_out(layer)
            activations.forward(self.whole[layer][: self.stack.layer_numel])
            if layer < self.stack.num_layers - self.settings.num_kept:
                self.m.release(self.whole.pop(layer))
        if held is not None:
            self.m.release(held)

    def _gather(self, layer: int) -> None:
        """Start to gather, unless the layer is whole or on its way."""
        if layer in self.gathers or layer in self.whole:
            return
        mine = self.state.parameters[layer]
        flat = self.m.allocate(len(mine) * self.m.world, "gathered")
        own = flat[self.m.rank * len(mine) : (self.m.rank + 1) * len(mine)]
        self.m.copy(own, mine)
        self.gathers[layer] = (self.m.all_gather(flat, own, start=True), flat)

    def _copy_out(self, layer: int) -> View | None:
        """Wait for the gather and make the layer whole; returns the flat buffer, None where it was whole before."""
        if layer in self.whole:
            return None
        token, flat = self.gathers.pop(layer)
        self.m.wait(token)
        self.whole[layer] = self.m.allocate(len(flat), "parameter")
        self.m.copy(self.whole[layer], flat)
        return flat

    def _backward(self, activations: Activations, layer: int) -> None:
        m, stack = self.m, self.stack
        gradient = m.allocate(stack.layer_numel, "gradient")
        activations.backward(gradient, self.whole[layer][: stack.layer_numel])
        m.release(self.whole.pop(layer))
        self._finish_reductions(keep=self.settings.num_inputs - 1)
        padded = allocate_padded(m, stack, "staging")
        m.copy(padded[: stack.layer_numel], gradient)
        pad(m, padded, stack)
        m.release(gradient)
        self.shards[layer] = m.allocate(len(padded) // m.world, "gradient")
        self.reductions.append((m.reduce_scatter(self.shards[layer], padded, self.op, start=True), padded))

    def _finish_reductions(self, *, keep: int) -> None:
        while len(self.reductions) > keep:
            token, padded = self.reductions.pop(0)
            self.m.wait(token)
            self.m.release(padded)


def fully_shard(settings: FullyShard) -> Callable[[Recorder, State, Stack, str], tuple[View, ...]]:
    """The step under these settings."""

    def run(m: Recorder, state: State, stack: Stack, op: str) -> tuple[View, ...]:
        return _Step(m, state, stack, op, settings).run()

    return run


TORCH_FULLY_SHARD = TrainingStep(
    name="torch_fully_shard",
    prepare=keep_shards,
    run=fully_shard(FullyShard()),
    summary="fully_shard on every layer: flat gathers copied out, one layer prefetched in backward",
)
