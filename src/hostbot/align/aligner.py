"""A trained alignment module: videos in, embeddings and correspondences out; and its two files.

``align.json`` says what the encoder is, ``align.safetensors`` holds its weights and, where there is any, company: a few
steps of videos of other tasks. The small ones ship with the package.

Legend: T demo steps, N robot steps, K steps, d embedding width.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hostbot.align.checkpoint import sync
from hostbot.align.company import Company
from hostbot.align.confidence import Calibration, confidence, features
from hostbot.align.cost import MatchConfig
from hostbot.align.distributed import whole
from hostbot.align.encoders import FrameEncoder, on_hand, whole_clips
from hostbot.align.maps import correspondence
from hostbot.align.qwen import QwenConfig, QwenFrameEncoder
from hostbot.align.small import SmallConfig, SmallFrameEncoder
from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.types import BadInput, Correspondence, Frames

SHIPPED = Path(__file__).parent.parent / "weights" / "align.json"
BACKBONE = "backbone"
_FORMAT = 1
_COMPANY = "company."


@dataclass(frozen=True, kw_only=True)
class AlignerConfig:
    """Everything but the weights."""

    encoder: SmallConfig | QwenConfig
    match: MatchConfig = field(default_factory=MatchConfig)
    rate_hz: float = 16.0
    """At which videos are embedded: the rate the encoder was trained at."""
    max_steps: int = 512
    """Of a video; a longer one is thinned, and its map drawn out again."""
    rest: float = 0.0
    """Steps closer than this to the last one that is matched are part of a rest and not matched; 0: all are."""
    begin: float | None = None
    """Most that a demo step costs before the robot's beginning (``MatchConfig.begin``), when videos are mapped."""
    calibration: Calibration | None = None
    confident: float = 0.5
    """Confidence from which two videos count as the same task."""

    def __post_init__(self) -> None:
        if not self.rest >= 0 or (self.begin is not None and not self.begin > 0):
            raise BadInput(f"rest must not be below 0 and begin above 0, got {self.rest} and {self.begin}")


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Two videos aligned, step by step, and how sure that is."""

    found: Correspondence
    confidence: float


def build_encoder(config: SmallConfig | QwenConfig, *, pretrained: bool = True) -> FrameEncoder:
    """The encoder a config describes; Qwen's from its checkpoint unless its weights come from elsewhere."""
    if isinstance(config, QwenConfig):
        return QwenFrameEncoder(config, pretrained=pretrained)
    return SmallFrameEncoder(config)


def _settings(config: AlignerConfig) -> dict[str, Any]:
    """What tells aligners apart; what is not used of what came later is no part of it, as it was none of older ones."""
    found = to_dict(config)
    later = (found["encoder"], "hands"), (found["match"], "begin"), (found, "begin"), (found, "rest")
    for where, name in later:
        if not where.get(name, True):
            del where[name]
    return found


class Aligner:
    """An encoder at work."""

    def __init__(
        self,
        encoder: FrameEncoder,
        config: AlignerConfig,
        device: torch.device | str = "cpu",
        company: Company | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.encoder, self.config, self.company = encoder.to(self.device).eval(), config, company

    @property
    def size(self) -> int:
        """Pixels a side of the frames it reads."""
        return self.encoder.size

    @property
    def identity(self) -> str:
        """Names the weights and settings: labels say which aligner made them. Reads a little of every tensor."""
        digest = hashlib.sha256(json.dumps(_settings(self.config), sort_keys=True).encode())
        for name, tensor in sorted(self.encoder.state_dict().items()):
            head = tensor.detach().flatten()[:4096].float().cpu().numpy()
            digest.update(f"{name}{tuple(tensor.shape)}".encode() + head.tobytes())
        for array in () if self.company is None else vars(self.company).values():
            digest.update(b"" if array is None else np.ascontiguousarray(array, np.float32).tobytes())
        return digest.hexdigest()[:16]

    @torch.no_grad()  # sharded modules do not take to inference mode
    def embed(self, views: Mapping[str, Frames]) -> Float32[np.ndarray, "K d"]:
        """Embeddings of one video's steps; any views, all of one length and of the encoder's size.

        A view whose name says wrist rides on a hand.
        """
        lengths = {name: len(frames) for name, frames in views.items()}
        if not lengths or len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise BadInput(f"the views of a video must have one length above 0, got {lengths}")
        frames = torch.from_numpy(np.stack(list(views.values()), 1))[None]
        clips = whole_clips(frames, riding=torch.tensor([[on_hand(name) for name in views]]))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.encoder(clips.to(self.device))[0].float().cpu().numpy()

    def looks(self, points: Float32[np.ndarray, "K d"]) -> Float32[np.ndarray, "K e"]:
        """What of embeddings says how things look; company is made of it."""
        return self.encoder.looks(torch.from_numpy(points)).numpy()

    def align(self, demo: Float32[np.ndarray, "T d"], robot: Float32[np.ndarray, "N d"]) -> Alignment:
        """The correspondence of two embedded videos, eq:alignment_map, and the confidence in it."""
        found = correspondence(torch.from_numpy(demo), torch.from_numpy(robot), self.config.match)
        values = features(demo, robot, found, self.company, (self.looks(demo), self.looks(robot)))
        return Alignment(found=found, confidence=confidence(values, self.config.calibration))


def save_aligner(
    encoder: FrameEncoder,
    config: AlignerConfig,
    path: Path,
    notes: Mapping[str, Any] | None = None,
    *,
    company: Company | None = None,
    writes: bool = True,
) -> None:
    """Write ``path`` (a .json file) and the weights beside it, in half precision, each aside and then in place.

    Where the encoder is sharded all processes call this and one of them ``writes``.
    """
    kind = torch.float16 if isinstance(config.encoder, SmallConfig) else torch.bfloat16
    tensors = {n: whole(p).detach().cpu().to(kind).contiguous() for n, p in encoder.state_dict().items()}
    if not writes:
        return
    if company is not None:
        kept = {k: v for k, v in vars(company).items() if v is not None}
        tensors |= {_COMPANY + k: torch.from_numpy(v).half().contiguous() for k, v in kept.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = path.with_suffix(".safetensors")
    aside = weights.with_name(f".{weights.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, aside)
        aside.chmod(0o644)
        sync(aside)
        os.replace(aside, weights)
    finally:
        aside.unlink(missing_ok=True)
    if isinstance(config.encoder, QwenConfig):
        _keep_backbone(Path(config.encoder.folder), path.parent / BACKBONE)
    size = weights.stat().st_size
    write_json(
        path, {"format": _FORMAT, "bytes": size, "config": to_dict(config), "notes": dict(notes or {})}
    )


def _keep_backbone(source: Path, target: Path) -> None:
    """Qwen's own small files (config, tokenizer, preprocessor), so that the weights are whole without its folder."""
    target.mkdir(exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.suffix in (".json", ".txt", ".jinja") and file.resolve() != (target / file.name).resolve():
            shutil.copyfile(file, target / file.name)


def load_aligner(path: Path | None = None, device: torch.device | str = "cpu") -> Aligner:
    """An aligner from its ``.json`` file (or the folder that holds ``align.json``); the shipped one without a path."""
    path = path or SHIPPED
    path = path / "align.json" if path.is_dir() else path
    if not path.is_file():
        what = (
            "the alignment weights of this package are missing"
            if path == SHIPPED
            else f"{path} does not exist"
        )
        raise BadInput(f"{what}; train them with `hostbot align train` and name them with --weights")
    saved = read_json(path)
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise BadInput(f"{path} holds no alignment weights of format {_FORMAT}; train them again")
    config = from_dict(AlignerConfig, saved["config"], str(path))
    encoder = build_encoder(_found(config.encoder, path.parent), pretrained=False)
    company = _read_weights(encoder, path.with_suffix(".safetensors"), int(saved["bytes"]))
    if isinstance(encoder, QwenFrameEncoder):
        encoder.model.to(torch.bfloat16)  # as it was trained and saved; the projection stays in float32
    return Aligner(encoder, config, device, company)


def _found(config: SmallConfig | QwenConfig, folder: Path) -> SmallConfig | QwenConfig:
    """Qwen's own files are looked for beside the weights first."""
    beside = folder / BACKBONE
    if isinstance(config, QwenConfig) and (beside / "config.json").is_file():
        return QwenConfig(**{**to_dict(config), "folder": str(beside)})
    return config


def _read_weights(encoder: FrameEncoder, path: Path, size: int) -> Company | None:
    """Into the encoder; the company that came with them is given back."""
    found = path.stat().st_size if path.is_file() else 0
    if found != size:
        raise BadInput(f"{path} has {found} bytes, not the {size} it was saved with; restore it from a copy")
    wanted = encoder.state_dict()
    try:
        with safe_open(path, framework="pt") as file, torch.no_grad():
            extra = {name for name in file.keys() if name.startswith(_COMPANY)}  # noqa: SIM118  no mapping
            if odd := sorted(set(file.keys()) - extra ^ set(wanted)):
                raise BadInput(
                    f"{path} does not hold this encoder's weights; they differ at {', '.join(odd[:3])}"
                )
            for name, parameter in wanted.items():
                tensor = file.get_tensor(name)
                if tensor.shape != parameter.shape:
                    raise BadInput(f"{name} is {tuple(tensor.shape)} in {path}, not {tuple(parameter.shape)}")
                parameter.copy_(tensor)
            if not extra:
                return None
            videos = {k.removeprefix(_COMPANY): file.get_tensor(k).float().numpy() for k in extra}
            return Company(**videos)
    except SafetensorError as error:
        raise BadInput(f"{path} is damaged: {error}; restore it from a copy") from None
