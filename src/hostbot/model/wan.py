"""Foreign weights: Wan2.2 in the diffusers layout, FastWAM's names, and the action expert grown from video.

This module alone knows how others name their tensors. Files are read as memory maps, one tensor at a time,
straight into the model's own parameters, so that loading takes no second copy of the weights.
Legend: o outputs, i inputs of a linear layer.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hostbot.model.checkpoint import empty_model
from hostbot.model.experts import Expert
from hostbot.model.host import HostConfig, HostModel
from hostbot.types import BadInput

DIFFUSERS_FILE = "diffusion_pytorch_model.safetensors"

# Foreign module -> (our module, place of its rows among those fused there, number of foreign modules fused).
Names = Mapping[str, tuple[str, int, int]]

DIFFUSERS_BLOCK: Names = {
    "attn1.to_q": ("qkvg", 0, 3),
    "attn1.to_k": ("qkvg", 1, 3),
    "attn1.to_v": ("qkvg", 2, 3),
    "attn1.norm_q": ("norm_q", 0, 1),
    "attn1.norm_k": ("norm_k", 0, 1),
    "attn1.to_out.0": ("out", 0, 1),
    "attn2.to_q": ("cross_q", 0, 1),
    "attn2.to_k": ("cross_kv", 0, 2),
    "attn2.to_v": ("cross_kv", 1, 2),
    "attn2.norm_q": ("cross_norm_q", 0, 1),
    "attn2.norm_k": ("cross_norm_k", 0, 1),
    "attn2.to_out.0": ("cross_out", 0, 1),
    "norm2": ("norm_cross", 0, 1),
    "ffn.net.0.proj": ("ffn_in", 0, 1),
    "ffn.net.2": ("ffn_out", 0, 1),
    "scale_shift_table": ("table", 0, 1),
}
DIFFUSERS_STEM: Names = {
    "patch_embedding": ("patch_in", 0, 1),
    "proj_out": ("patch_out", 0, 1),
    "scale_shift_table": ("table", 0, 1),
    "condition_embedder.time_embedder.linear_1": ("time.hidden", 0, 1),
    "condition_embedder.time_embedder.linear_2": ("time.out", 0, 1),
    "condition_embedder.time_proj": ("time.proj", 0, 1),
    "condition_embedder.text_embedder.linear_1": ("text.hidden", 0, 1),
    "condition_embedder.text_embedder.linear_2": ("text.out", 0, 1),
}
WAN_BLOCK: Names = {
    "self_attn.q": ("qkvg", 0, 3),
    "self_attn.k": ("qkvg", 1, 3),
    "self_attn.v": ("qkvg", 2, 3),
    "self_attn.norm_q": ("norm_q", 0, 1),
    "self_attn.norm_k": ("norm_k", 0, 1),
    "self_attn.o": ("out", 0, 1),
    "cross_attn.q": ("cross_q", 0, 1),
    "cross_attn.k": ("cross_kv", 0, 2),
    "cross_attn.v": ("cross_kv", 1, 2),
    "cross_attn.norm_q": ("cross_norm_q", 0, 1),
    "cross_attn.norm_k": ("cross_norm_k", 0, 1),
    "cross_attn.o": ("cross_out", 0, 1),
    "norm3": ("norm_cross", 0, 1),
    "ffn.0": ("ffn_in", 0, 1),
    "ffn.2": ("ffn_out", 0, 1),
    "modulation": ("table", 0, 1),
}
_WAN_EMBEDDINGS: Names = {
    "time_embedding.0": ("time.hidden", 0, 1),
    "time_embedding.2": ("time.out", 0, 1),
    "time_projection.1": ("time.proj", 0, 1),
    "text_embedding.0": ("text.hidden", 0, 1),
    "text_embedding.2": ("text.out", 0, 1),
}
WAN_STEM: Names = {
    **_WAN_EMBEDDINGS,
    "patch_embedding": ("patch_in", 0, 1),
    "head.head": ("patch_out", 0, 1),
    "head.modulation": ("table", 0, 1),
}
FASTWAM_ACTION_STEM: Names = {
    **_WAN_EMBEDDINGS,
    "action_encoder": ("action_in", 0, 1),
    "head": ("action_out", 0, 1),
}


Kind = Literal["plain", "patch_in", "patch_out"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a foreign tensor goes: ``size`` rows from ``start`` of a parameter of ours, or (0) all of it."""

    name: str
    start: int = 0
    size: int = 0
    kind: Kind = "plain"

    def rows(self, parameter: Tensor) -> Tensor:
        """The rows it fills."""
        return parameter[self.start : self.start + self.size] if self.size else parameter


def places(expert: Expert, prefix: str, stem: Names, block: Names, root: str = "") -> dict[str, Place]:
    """Every foreign name of an expert, with its place; ``prefix`` is our module, ``root`` the foreign one."""
    modules = {f"{root}{theirs}": (f"{prefix}.{ours}", part, n) for theirs, (ours, part, n) in stem.items()}
    for index in range(len(expert.blocks)):
        for theirs, (ours, part, parts) in block.items():
            modules[f"{root}blocks.{index}.{theirs}"] = (f"{prefix}.blocks.{index}.{ours}", part, parts)
    own = {f"{prefix}.{name}" for name, _ in expert.named_parameters()}
    found: dict[str, Place] = {}
    for theirs, (ours, part, parts) in modules.items():
        size = expert.config.inner_dim if parts > 1 else 0
        for suffix in ("", ".weight", ".bias"):
            name = ours + suffix
            if name in own:
                kind: Kind = "plain"
                if name.endswith("patch_in.weight"):
                    kind = "patch_in"
                elif ".patch_out." in name:
                    kind = "patch_out"
                found[theirs + suffix] = Place(name=name, start=part * size, size=size, kind=kind)
    return found


def diffusers_places(model: HostModel) -> dict[str, Place]:
    """Names of ``diffusers.WanTransformer3DModel``."""
    return places(model.video, "video", DIFFUSERS_STEM, DIFFUSERS_BLOCK)


def fastwam_places(model: HostModel) -> dict[str, Place]:
    """Names of FastWAM's mixture: Wan's own in the video expert, the same blocks in the action expert."""
    found = places(model.video, "video", WAN_STEM, WAN_BLOCK, "mixtures.video.")
    return found | places(model.action, "action", FASTWAM_ACTION_STEM, WAN_BLOCK, "mixtures.action.")


def _ours(tensor: Tensor, place: Place, channels: int) -> Tensor:
    """A foreign tensor in our order: a convolution over patches is a linear layer; we put channels first."""
    if place.kind == "patch_in":
        return tensor.flatten(1)
    if place.kind == "patch_out":
        return tensor.reshape(-1, channels, *tensor.shape[1:]).transpose(0, 1).flatten(0, 1)
    return tensor


def _theirs(tensor: Tensor, place: Place, channels: int, patch: int) -> Tensor:
    """The way back."""
    if place.kind == "patch_in":
        return tensor.reshape(len(tensor), channels, 1, patch, patch)
    if place.kind == "patch_out":
        return tensor.reshape(channels, -1, *tensor.shape[1:]).transpose(0, 1).flatten(0, 1)
    return tensor


@contextmanager
def _opened(files: list[Path]) -> Iterator[dict[str, safe_open]]:
    """All tensors of some safetensors files by name, memory-mapped."""
    try:
        opened = [safe_open(path, framework="pt") for path in files]
    except (SafetensorError, OSError) as error:
        raise BadInput(f"cannot read weights: {error}") from error
    yield {name: file for file in opened for name in file.keys()}  # noqa: SIM118


def shards(folder: Path) -> list[Path]:
    """The weight files of a diffusers transformer folder, or of the ``transformer`` folder inside."""
    folder = folder / "transformer" if (folder / "transformer").is_dir() else folder
    index = folder / f"{DIFFUSERS_FILE}.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        files = [folder / name for name in names]
    else:
        files = [folder / DIFFUSERS_FILE]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise BadInput(
            f"{folder} lacks {', '.join(missing)}: give Wan-AI/Wan2.2-TI2V-5B-Diffusers as downloaded"
        )
    return files


def _fill(model: HostModel, files: list[Path], wanted: Mapping[str, Place], strip: str = "") -> None:
    """Copy every wanted tensor into its place; anything missing, left over or misshapen is refused."""
    parameters = dict(model.named_parameters())
    with _opened(files) as stored, torch.no_grad():
        by_name = {name.removeprefix(strip): (name, file) for name, file in stored.items()}
        _refuse("lacks", set(wanted) - set(by_name))
        _refuse("has unknown", set(by_name) - set(wanted))
        for theirs, place in wanted.items():
            name, file = by_name[theirs]
            stored_tensor, rows = file.get_tensor(name), place.rows(parameters[place.name])
            same_size = stored_tensor.numel() == rows.numel()
            tensor = _ours(stored_tensor, place, model.config.grid.latent_channels) if same_size else None
            if tensor is None or tensor.shape != rows.shape:
                raise BadInput(
                    f"{theirs} is {tuple(stored_tensor.shape)}; {place.name} takes {tuple(rows.shape)} here"
                )
            rows.copy_(tensor)


def _refuse(what: str, names: set[str]) -> None:
    if names:
        some = ", ".join(sorted(names)[:3])
        raise BadInput(f"the checkpoint {what} {len(names)} tensors, {some} among them")


def load_video(model: HostModel, folder: Path) -> None:
    """Fill the video expert from a Wan transformer in the diffusers layout, strictly."""
    _fill(model, shards(folder), diffusers_places(model))


def to_diffusers(model: HostModel) -> dict[str, Tensor]:
    """The video expert as ``diffusers.WanTransformer3DModel`` names it; gates, p and a stem have no place there."""
    parameters, grid = dict(model.named_parameters()), model.config.grid
    return {
        theirs: _theirs(
            place.rows(parameters[place.name]).detach(), place, grid.latent_channels, grid.patch
        ).contiguous()
        for theirs, place in diffusers_places(model).items()
    }


def load_fastwam(model: HostModel, file: Path) -> list[str]:
    """Fill both experts from a FastWAM-named safetensors file; returns the parameters it has nothing for.

    ``mot.mixtures.video.*`` and ``mixtures.video.*`` are both taken, ``proprio_encoder.*`` where it is there.
    """
    wanted = dict(fastwam_places(model))
    with _opened([file]) as stored:
        strip = next((p for p in ("model.mot.", "mot.") if any(n.startswith(p) for n in stored)), "")
        for suffix in ("weight", "bias"):
            theirs = f"proprio_encoder.{suffix}"
            if theirs in stored:
                wanted[theirs] = Place(name=f"proprio.{suffix}")
    _fill(model, [file], wanted, strip)
    filled = {place.name for place in wanted.values()}
    return [name for name, _ in model.named_parameters() if name not in filled]


# The action expert ------------------------------------------------------------------------------------


def resize(source: Float[Tensor, "*i"], shape: torch.Size, fan_in: bool) -> Float[Tensor, "*o"]:
    """Linear interpolation along every axis that differs, then one scale that keeps activations' variance.

    With ``fan_in`` the last axis is summed over, and weights grow by sqrt(old / new) of its length, the
    paper's alpha; elsewhere the root mean square stays as it was. The scale is measured, not assumed:
    interpolation itself shrinks white noise by an amount that depends on the ratio.
    """
    result = source.float()
    for axis, size in enumerate(shape):
        if result.shape[axis] != size:
            moved = result.movedim(axis, -1)
            flat = moved.reshape(1, -1, moved.shape[-1])
            resized = F.interpolate(flat, size=size, mode="linear", align_corners=False)
            result = resized.reshape(*moved.shape[:-1], size).movedim(-1, axis)
    alpha = (source.shape[-1] / shape[-1]) ** 0.5 if fan_in else 1.0
    rms, target = result.square().mean().sqrt(), alpha * source.float().square().mean().sqrt()
    return result * (target / rms if rms > 0 else 1.0)


def grow_action_expert(model: HostModel) -> list[str]:
    """Initialise the action expert from the video expert; returns what has no counterpart there.

    Head gates keep their own start; the in and out projections are Kaiming uniform from construction.
    """
    video = dict(model.video.named_parameters())
    left: list[str] = []
    with torch.no_grad():
        for name, parameter in model.action.named_parameters():
            if name not in video:
                left.append(f"action.{name}")
                continue
            rows = 3 * model.config.video.inner_dim if ".qkvg." in name else len(parameter)
            target, source = parameter[:rows], video[name][: rows if ".qkvg." in name else None]
            # The six components of the time projection are separate maps: they must not blend.
            parts = 6 if name.startswith("time.proj") else 1
            shape = torch.Size([parts, len(target) // parts, *target.shape[1:]])
            old = source.reshape(parts, -1, *source.shape[1:])
            target.copy_(resize(old, shape, fan_in=source.ndim == 2).flatten(0, 1))
    return left


def start_own(model: HostModel) -> None:
    """Initialise what no foreign checkpoint has: gates, localisation codec, M_s, action in and out."""
    for expert in (model.video, model.action):
        for index in range(len(expert.blocks)):
            expert.layer(index).open_gates()
    model.action.reset_ends()
    for module in model.localisation.children():
        module.reset_parameters()  # type: ignore[operator]
    model.proprio.reset_parameters()


def from_wan(config: HostConfig, folder: Path, dtype: torch.dtype) -> HostModel:
    """A HOST model on Wan's video weights: what training starts from."""
    model = empty_model(config, dtype)
    start_own(model)
    load_video(model, folder)
    grow_action_expert(model)
    return model


def from_fastwam(config: HostConfig, file: Path, dtype: torch.dtype) -> HostModel:
    """A HOST model on a FastWAM checkpoint: both experts as they were trained together."""
    model = empty_model(config, dtype)
    start_own(model)
    load_fastwam(model, file)
    return model
