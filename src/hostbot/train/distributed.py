"""Ranks: one process, DDP, FSDP2 or HSDP under torchrun, on one machine or many; gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from hostbot.model.experts import Block
from hostbot.model.host import HostModel
from hostbot.model.mot import JointPlan
from hostbot.model.shared import SharedPlan, WatchPlan, any_layer
from hostbot.train.config import Mode
from hostbot.types import BadInput

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_TEXT = 512
"""Bytes of an error that ranks tell one another."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Who this process is among all."""

    mode: Mode
    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this rank speaks, logs and writes what all share."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """Values summed over ranks, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier()

    def first_error(self, error: str | None) -> str | None:
        """The first error any rank met, on every rank."""
        if self.size == 1:
            return error
        text = (error or "").encode()[:_TEXT]
        mine = torch.zeros(_TEXT, dtype=torch.uint8)
        mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else 0
        found = [torch.zeros_like(mine, device=self.device) for _ in range(self.size)]
        dist.all_gather(found, mine.to(self.device))
        texts = [bytes(t.tolist()).rstrip(b"\0").decode(errors="replace") for t in found]
        return next((t for t in texts if t), None)


@contextmanager
def joined(mode: Mode, device: str | None = None) -> Iterator[World]:
    """Join the other ranks torchrun has started, and leave them at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if mode == "single" and size > 1:
        raise BadInput(f"torchrun started {size} ranks: choose --mode ddp, fsdp or hsdp")
    if mode != "single" and "RANK" not in os.environ:
        raise BadInput(
            f"--mode {mode} is for ranks that torchrun starts: torchrun --nproc-per-node 8 -m hostbot ..."
        )
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.device(chosen)
    if where.type == "cuda":
        where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) if size > 1 else where.index or 0)
        torch.cuda.set_device(where)
    if mode == "single":
        yield World(mode=mode, rank=0, size=1, device=where)
        return
    dist.init_process_group(
        "nccl" if where.type == "cuda" else "gloo", device_id=where if where.type == "cuda" else None
    )
    try:
        yield World(mode=mode, rank=rank, size=size, device=where)
    finally:
        dist.destroy_process_group()


class JointLayer(nn.Module):
    """Both experts' blocks of one layer as one unit of sharding: gathered once, used for all tokens."""

    def __init__(self, video: Block, action: Block) -> None:
        super().__init__()
        self.video, self.action = video, action

    def forward(self, tokens: Any, plan: JointPlan | SharedPlan | WatchPlan, last: bool) -> Any:
        """One layer of eq:mot_attn."""
        return any_layer(self.video, self.action, tokens, plan, last)


def distribute(
    module: nn.Module, model: HostModel, world: World, bfloat16: bool, partial: bool = False
) -> nn.Module:
    """The module made ready for its ranks; what comes back is what to call. Names of parameters stay.

    ``partial``: not every parameter has a part in what is learned.
    """
    if world.mode == "single":
        return module
    if world.mode == "ddp":
        ids = [world.device.index] if world.device.type == "cuda" else None
        return DistributedDataParallel(
            module, device_ids=ids, gradient_as_bucket_view=True, find_unused_parameters=partial
        )
    mesh = _mesh(world)
    # Gathered weights of blocks are bfloat16, everything outside them float32: time, localisation and actions
    # are computed in float32 from float32 weights. Shards, gradients' sums and moments are float32.
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bfloat16 else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    units = {
        id(video): JointLayer(video, model.action.layer(index))
        for index, video in enumerate(map(model.video.layer, range(model.config.video.num_layers)))
    }
    for unit in units.values():
        fully_shard(unit, mesh=mesh, mp_policy=policy)

    def layer(
        video: Block, _: Block, tokens: Any, plan: JointPlan | SharedPlan | WatchPlan, last: bool
    ) -> Any:
        return units[id(video)](tokens, plan, last)

    model.joint_layer = layer
    # Known to the tree, so that the root prefetches them; parameters keep the names they had before.
    model.layers = nn.ModuleList(units.values())
    inside = {parameter for unit in units.values() for parameter in unit.parameters()}
    fully_shard(module, mesh=mesh, ignored_params=inside)
    return module


def _mesh(world: World) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    if world.mode == "fsdp":
        return init_device_mesh(world.device.type, (world.size,), mesh_dim_names=("shard",))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if world.size % local:
        raise BadInput(f"{world.size} ranks cannot be cut into machines of {local}")
    shape = (world.size // local, local)
    return init_device_mesh(world.device.type, shape, mesh_dim_names=("replicate", "shard"))
