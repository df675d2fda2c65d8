"""A step's forward and backward pass as one CUDA graph a layout: replayed, they cost the CPU next to nothing.

A step of a tiny model is thousands of small kernels, and telling the card about them is what takes the time: without
anything to compute a step of matching keeps a CPU core busy for 70 ms. A graph is told once. What is random is drawn
outside and copied in; gradients lie in the graph's own memory and are lent to the parameters after each replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from hostbot.data.batches import Batch, generator_for
from hostbot.train.compiled import TOLERANCE, checked_difference, gradients, one_of_each
from hostbot.train.config import TrainConfig
from hostbot.train.contract import TOTAL
from hostbot.train.distributed import World
from hostbot.train.stages import Policy, PolicyStage, Prepared

_WARM = 3
"""Passes before a capture: whatever is made at first use must be there."""


@dataclass(frozen=True, kw_only=True)
class _Graph:
    """One layout's pass with the memory it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    figures: dict[str, Tensor]
    gradients: list[Tensor | None]


class Graphs:
    """What to call instead of a policy and its loss's ``backward``."""

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        self._policy, self._half = policy, config.precision == "bfloat16"
        self._parameters = [p for p in policy.parameters() if p.requires_grad]
        self._graphs: dict[tuple[object, ...], _Graph] = {}

    def __call__(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """Figures of a batch, its gradients left in the parameters; a layout that was not captured runs plainly."""
        given = self._policy.prepare(batch, generator)
        known = self._graphs.get(layout_of(given))
        if known is None:
            return self._learn(given)
        torch._foreach_copy_(known.inputs, list(tensors_of(given)))
        known.graph.replay()
        for parameter, gradient in zip(self._parameters, known.gradients, strict=True):
            parameter.grad = gradient
        return known.figures

    def capture(self, batch: Batch, generator: torch.Generator) -> None:
        """Record the pass of a batch like this one."""
        given = self._policy.prepare(batch, generator)
        inputs = [tensor.clone() for tensor in tensors_of(given)]
        static = with_tensors(given, iter(inputs))
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM):
                self._policy.zero_grad(set_to_none=True)
                self._learn(static)
        torch.cuda.current_stream().wait_stream(aside)
        self._policy.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            figures = self._learn(static)
        gradients = [p.grad for p in self._parameters]
        self._policy.zero_grad(set_to_none=True)
        found = {name: value.detach() for name, value in figures.items()}
        self._graphs[layout_of(given)] = _Graph(
            graph=graph, inputs=inputs, figures=found, gradients=gradients
        )

    def _learn(self, given: Prepared) -> dict[str, Tensor]:
        device = given.point.device.type
        # Casts that are kept between passes would be of weights as they were then.
        with torch.autocast(device, torch.bfloat16, enabled=self._half, cache_enabled=False):
            figures = self._policy.figures(given)
        figures[TOTAL].backward()
        return figures


def graphs_checked(
    stage: PolicyStage, config: TrainConfig, world: World, tell: Callable[[str], None]
) -> Graphs | None:
    """Graphs of every layout, if they give the gradients of the plain pass; None where they cannot be had."""
    if world.mode != "single" or world.device.type != "cuda" or config.batch != config.micro:
        tell("graphs are for one process on a GPU that takes its batch whole: training goes on without")
        return None
    graphs, worst = Graphs(stage.module, config), 0.0
    try:
        for step in one_of_each(stage):
            wanted = gradients(stage, config, world, step)
            if layout_of(_prepared(stage, config, world, step)) not in graphs._graphs:
                graphs.capture(stage.batch(step, 0), generator_for(config.seed + 2, step, 0, world.device))
            graphs(stage.batch(step, 0), generator_for(config.seed + 1, step, 0, world.device))
            named = stage.module.named_parameters()
            found = {name: p.grad.clone() for name, p in named if p.grad is not None}
            stage.module.zero_grad(set_to_none=True)
            worst = max(worst, checked_difference(stage, config, world, step, found, wanted))
    except RuntimeError as error:
        stage.module.zero_grad(set_to_none=True)
        tell(
            f"a step cannot be made a graph here ({str(error).splitlines()[0][:160]}): training goes on without"
        )
        return None
    if worst > TOLERANCE:
        tell(f"graphs give gradients that are {worst:.0%} off: training goes on without")
        return None
    tell(f"steps are graphs; the gradient of no tensor is more than {worst:.2%} off")
    return graphs


def _prepared(stage: PolicyStage, config: TrainConfig, world: World, step: int) -> Prepared:
    return stage.module.prepare(stage.batch(step, 0), generator_for(config.seed + 1, step, 0, world.device))


def tensors_of(value: Any) -> Iterator[Tensor]:
    """All tensors of nested dataclasses, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name))


def with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The same, with other tensors in their places."""
    if isinstance(value, Tensor):
        return next(tensors)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: with_tensors(getattr(value, f.name), tensors) for f in fields(value)})
    return value


def layout_of(value: Any) -> tuple[object, ...]:
    """What must be equal for two inputs to run through the same graph: shapes and types, and everything else."""
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.dtype)
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(layout_of(getattr(value, field.name)) for field in fields(value))
    return (value,)
