"""One process, or many under torchrun with FSDP2; the trainer asks here and does not know which.

Sharded parameters are DTensors. For a checkpoint each is gathered whole, one at a time; on loading, every process
reads the whole tensor from the map and keeps its part, so that a run may go on with another number of processes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from hostbot.align.encoders import FrameEncoder
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def slots(self, total: int) -> range:
        """This process's share of a batch."""
        if total % self.size:
            raise BadInput(f"a batch of {total} pairs cannot be shared by {self.size} processes evenly")
        return range(self.rank * total // self.size, (self.rank + 1) * total // self.size)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes."""
        if self.size > 1:
            dist.all_reduce(values)
            values = values / self.size
        return values

    def gather(self, values: Tensor) -> Tensor:
        """The values of all processes in order; gradients reach this one's, as large as if one process held them all.

        Sharded training takes the mean of the processes' gradients, hence the factor.
        """
        if self.size == 1:
            return values
        parts = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(parts, values.detach().contiguous())
        if values.requires_grad:
            parts[self.rank] = values * self.size - (values * (self.size - 1)).detach()
        return torch.cat(parts)

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined(device: str | None = None) -> Iterator[World]:
    """This process's world, as torchrun described it in the environment; alone where nothing did."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if size == 1:
        yield World(device=torch.device(kind))
        return
    local = (
        torch.device(kind, int(os.environ.get("LOCAL_RANK", "0"))) if kind == "cuda" else torch.device(kind)
    )
    if local.type == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if local.type == "cuda" else "gloo")
    try:
        yield World(rank=rank, size=size, device=local)
        dist.barrier()  # nobody leaves while another still talks
        gc.collect()  # what holds a group in a cycle goes before its threads do, not when the interpreter ends
    finally:
        dist.destroy_process_group()


def shard(encoder: FrameEncoder, world: World, *, bf16: bool) -> FrameEncoder:
    """Spread an encoder over the processes, its projection kept in float32; alone, nothing is wrapped."""
    encoder = encoder.to(world.device)
    if world.size == 1:
        return encoder
    mesh = init_device_mesh(world.device.type, (world.size,))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": half if bf16 else MixedPrecisionPolicy()}
    for unit in encoder.units():
        fully_shard(unit, **options)
    fully_shard(encoder.projection, mesh=mesh)
    fully_shard(encoder, **options)
    return encoder


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its parts, on every process."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_like(reference: Tensor, tensor: Tensor) -> Tensor:
    """A whole tensor cut and placed like another."""
    tensor = tensor.to(reference.device, reference.dtype)
    if not isinstance(reference, DTensor):
        return tensor
    return distribute_tensor(tensor, reference.device_mesh, reference.placements, src_data_rank=None)
