"""A policy on disk: everything that is needed to act, in one folder, whole or not there at all.

policy.json   sizes, embodiment, statistics, which encoders; written last
model/        weights and their config (model/checkpoint.py)
vae/          the VAE in the diffusers layout; may lie elsewhere
text/         text_encoder and tokenizer, where the encoder has weights; may lie elsewhere
"""

from __future__ import annotations

import copy
import hashlib
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.data.normalize import NormalizeConfig, Normalizer
from hostbot.data.stats import ACTION, RELATIVE, STATE, Statistics
from hostbot.model import checkpoint
from hostbot.model.host import HostConfig, HostModel
from hostbot.model.text import HashedWords, TextEncoder, load_umt5
from hostbot.policy.contract import CascadeConfig
from hostbot.policy.window import LATENT_FRAMES, DemoGrid
from hostbot.types import BadInput, Embodiment

if TYPE_CHECKING:
    from diffusers import AutoencoderKLWan

MANIFEST, FORMAT = "policy.json", 1


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """What a model was trained to be given and to give."""

    name: str
    embodiment: Embodiment
    image_size: tuple[int, int]
    """Height and width of one view."""
    video_stride: int
    """Control steps between two frames that the model sees."""
    text_encoder: str
    """Identity of the text encoder it was trained with."""
    codec: str
    """Identity of the VAE it was trained with."""
    relative_actions: bool = True
    pace: float = 1.0
    """How fast to play a demonstration where the caller does not say."""
    rests: int | None = None
    """Control steps, before the pace, that are kept of each of a demonstration's rests; None: all, as in the paper."""
    whole_video: bool = False
    """Trained with the whole demonstration as its window (an ablation): played at whatever pace fits it in."""
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    cascade: CascadeConfig = field(default_factory=CascadeConfig)
    execute: int | None = None
    """Steps of a chunk that it does best with where the caller does not say; None: all, as in the paper."""

    def check(self, model: HostConfig) -> None:
        """Refuse a model of other sizes."""
        pairs = {
            "views": (len(self.embodiment.views), model.grid.num_views),
            "action numbers": (self.embodiment.dim, model.action_dim),
            "state numbers": (self.embodiment.dim, model.state_dim),
            "predicted frames": (
                model.horizon // self.video_stride,
                LATENT_FRAMES * model.grid.future_latents,
            ),
        }
        for what, (ours, theirs) in pairs.items():
            if ours != theirs:
                raise BadInput(f"policy {self.name!r} is for {ours} {what} but its model has {theirs}")
        if not (math.isfinite(self.pace) and self.pace > 0):
            raise BadInput(f"a pace is a factor above 0, got {self.pace}")
        if self.rests is not None and (self.rests < 0 or self.whole_video):
            raise BadInput(
                "of a rest 0 control steps or more are kept, and all where a whole video is seen at once; got "
                f"{self.rests}"
            )
        if self.execute is not None and not 1 <= self.execute <= model.horizon:
            raise BadInput(f"a chunk has {model.horizon} steps; {self.execute} of them cannot be executed")

    def grid(self, model: HostConfig) -> DemoGrid:
        """The grid demonstrations are encoded on."""
        return DemoGrid(stride=self.video_stride, window_latents=model.grid.demo_latents)


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The statistics at work: state and action between their own units and [-1, 1]."""

    state: Normalizer
    action: Normalizer


def scaling(spec: PolicySpec, statistics: Statistics | None, horizon: int) -> Scaling:
    """Normalisers from statistics, which are required: a policy without them would send wild actions."""
    wanted = RELATIVE if spec.relative_actions else ACTION
    features = {} if statistics is None else statistics.features
    for name in (STATE, wanted):
        if name not in features:
            raise BadInput(
                f"policy {spec.name!r} has no statistics of {name!r} and cannot act without them: write them with "
                "`hostbot data stats` for the data it was trained on, and export it again"
            )
        if len(features[name].min) != spec.embodiment.dim:
            raise BadInput(
                f"the statistics of {name!r} have {len(features[name].min)} dimensions but "
                f"{spec.embodiment.name!r} has {spec.embodiment.dim}"
            )
    assert statistics is not None
    if spec.relative_actions and statistics.horizon != horizon:
        raise BadInput(
            f"the statistics are of chunks of {statistics.horizon} steps but the model's have {horizon}: "
            f"write them with `hostbot data stats --horizon {horizon}`"
        )
    return Scaling(
        state=Normalizer.from_stats(features[STATE], spec.normalize),
        action=Normalizer.from_stats(features[wanted], spec.normalize),
    )


def write_bundle(
    folder: Path,
    *,
    model: HostModel,
    spec: PolicySpec,
    statistics: Statistics,
    vae: AutoencoderKLWan | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a policy aside, manifest last, and move it into place; without ``vae`` it must be given at loading."""
    spec.check(model.config)
    scaling(spec, statistics, model.config.horizon)
    if folder.exists():
        raise BadInput(f"{folder} exists already: choose another name or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        checkpoint.save(model, aside / "model", {"weights_sha256": weights_hash(model)})
        if vae is not None:
            from hostbot.model.vae import save_vae

            save_vae(vae, aside / "vae")
        manifest = {
            "format": FORMAT,
            "spec": to_dict(spec),
            "statistics": to_dict(statistics),
            "notes": dict(notes or {}),
        }
        write_json(aside / MANIFEST, manifest)
        for path in (*aside.rglob("*"), aside):
            checkpoint.sync(path)
        aside.chmod(0o755)
        aside.rename(folder)
        checkpoint.sync(folder.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def pack(
    policy: Path,
    out: Path,
    execute: int | None = None,
    noise: float | None = None,
    skip_future: bool | None = None,
    pace: float | None = None,
    rests: int | None = None,
) -> None:
    """Write a policy at half its size, its weights as float16; it loads and trains as before.

    How it decides best is found out later than it is trained: how much of a chunk is to be executed, how much noise
    future and actions are made from, whether they need the visual stage, how fast a video is best played, how much of
    its rests is best kept. It is noted where it is given.

    Of the folders its notes name only the last two parts stay: the others are this machine's. A VAE whose weights
    float16 cannot hold is rounded, too, and gets another identity.
    """
    from hostbot.model.vae import LatentCodec, load_vae

    known = read_bundle(policy)
    if known.statistics is None:
        raise BadInput(f"{policy} has no statistics: it cannot act, packed or not")
    noted: dict[str, Any] = {"execute": execute, "pace": pace, "rests": rests}
    spec = replace(known.spec, **{name: value for name, value in noted.items() if value is not None})
    vae = None
    if noise is not None:
        spec = replace(spec, cascade=replace(spec.cascade, noise_o=noise, noise_a=noise))
    if skip_future is not None:
        spec = replace(spec, cascade=replace(spec.cascade, skip_future=skip_future))
    if (policy / "vae").is_dir():
        seen_with = load_vae(policy / "vae").half()  # type: ignore[attr-defined]
        spec = replace(spec, codec=LatentCodec(copy.deepcopy(seen_with).float()).identity)
        vae = seen_with
    notes = {**_portable(known.notes), "packed": "float16"}
    model = checkpoint.load(policy / "model").half()
    spec.check(model.config)
    write_bundle(out, model=model, spec=spec, statistics=known.statistics, vae=vae, notes=notes)
    for extra in policy.glob("*.safetensors"):  # heads that only training has
        shutil.copyfile(extra, out / extra.name)


def _portable(value: Any) -> Any:
    """Notes without this machine's folders."""
    if isinstance(value, Mapping):
        return {key: _portable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(one) for one in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(*Path(value).parts[-2:]).as_posix()
    return value


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A bundle's policy.json."""

    spec: PolicySpec
    statistics: Statistics | None
    notes: Mapping[str, Any]


def read_bundle(folder: Path) -> Manifest:
    """What a bundle says of itself; no weight is read."""
    if not (folder / MANIFEST).is_file():
        raise BadInput(f"{folder} is no policy: it has no {MANIFEST}; `hostbot train` exports one")
    raw = read_json(folder / MANIFEST)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else None
        raise BadInput(f"{folder / MANIFEST} has format {found}; this hostbot reads format {FORMAT}")
    where = str(folder / MANIFEST)
    statistics = raw.get("statistics")
    return Manifest(
        spec=from_dict(PolicySpec, raw.get("spec"), f"{where}: spec"),
        statistics=None if statistics is None else from_dict(Statistics, statistics, f"{where}: statistics"),
        notes=raw.get("notes") or {},
    )


def find_text_encoder(spec: PolicySpec, model: HostConfig, folder: Path) -> TextEncoder:
    """The encoder a policy was trained with; another is refused."""
    words = HashedWords(dim=model.video.text_dim, length=model.text_length)
    if spec.text_encoder == words.identity:
        return words
    if not folder.is_dir():
        raise BadInput(f"policy {spec.name!r} reads with {spec.text_encoder}: give its folder with text=")
    found = load_umt5(folder, model.text_length)
    # The middle of the name is the folder's, which a download may have under another name.
    if [found.identity.split("-")[i] for i in (0, -1)] != [spec.text_encoder.split("-")[i] for i in (0, -1)]:
        raise BadInput(
            f"policy {spec.name!r} reads with {spec.text_encoder}, but {folder} is {found.identity}"
        )
    return found


def weights_hash(model: nn.Module) -> str:
    """sha256 over every parameter and buffer: the same before and after any number of acquired skills."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(np.asarray(flat.view(torch.uint8)).tobytes())
    return digest.hexdigest()
