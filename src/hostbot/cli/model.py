"""``hostbot model``: make a model from foreign weights, and say what one is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class Init:
    """Write a new checkpoint: the paper's model on Wan2.2's weights, or either size from scratch."""

    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """The checkpoint folder to write; it must not exist."""
    source: Annotated[Path | None, arg(name="from", metavar="DIR")] = None
    """Wan2.2-TI2V-5B as diffusers stores it (a folder), or FastWAM-named weights (a .safetensors file)."""
    size: Literal["wan5b", "tiny"] = "wan5b"
    """Which model."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """How weights are stored; training keeps float32 masters, so bfloat16 is for use only."""
    seed: int = 0
    """For the weights that are drawn."""

    def run(self) -> None:
        """Build it in memory once, write it aside, move it into place."""
        import torch

        from hostbot.model import checkpoint, wan
        from hostbot.model.host import HostModel
        from hostbot.model.sizes import tiny_model, wan5b_model

        if self.out.exists():
            raise BadInput(f"{self.out} exists already: choose another name or remove it")
        torch.manual_seed(self.seed)
        config = wan5b_model() if self.size == "wan5b" else tiny_model()
        dtype = torch.float32 if self.dtype == "float32" else torch.bfloat16
        if self.source is None:
            model = HostModel(config).to(dtype)
        elif self.source.is_dir():
            model = wan.from_wan(config, self.source, dtype)
        elif self.source.suffix == ".safetensors":
            model = wan.from_fastwam(config, self.source, dtype)
        else:
            raise BadInput(
                f"{self.source} is no diffusers folder and no .safetensors file; pickles are not read"
            )
        origin = "drawn" if self.source is None else self.source.name
        checkpoint.save(model, self.out, {"origin": origin, "seed": self.seed})
        print(f"{self.out}: {sum(p.numel() for p in model.parameters()):,} parameters from {origin}")


@dataclass(frozen=True, kw_only=True)
class Info:
    """What a checkpoint is: sizes, tokens, parameters, where it came from. Reads headers only."""

    path: Annotated[Positional[Path], arg(metavar="CHECKPOINT")]
    """A folder that hostbot wrote."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Print it."""
        found = describe(self.path)
        if self.json:
            print(json.dumps(found, indent=2))
            return
        for name, value in found.items():
            print(f"{name:<20} {value}")


def describe(path: Path) -> dict[str, Any]:
    """The facts of a checkpoint."""
    from safetensors import safe_open

    from hostbot.model import checkpoint
    from hostbot.model.host import HostConfig

    manifest = checkpoint.read_manifest(path)
    config = checkpoint.from_json(HostConfig, manifest["config"])
    counts: dict[str, int] = {}
    kinds: set[str] = set()
    with safe_open(path / checkpoint.WEIGHTS, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            view = file.get_slice(name)
            size = 1
            for length in view.get_shape():
                size *= length
            part = name.split(".")[0]
            counts[part] = counts.get(part, 0) + size
            kinds.add(str(view.get_dtype()))
    grid = config.grid
    return {
        "parameters": sum(counts.values()),
        **{f"parameters.{part}": count for part, count in counts.items()},
        "stored as": ", ".join(sorted(kinds)),
        "bytes": manifest["bytes"],
        "layers": config.video.num_layers,
        "video width": config.video.dim,
        "action width": config.action.dim,
        "views": grid.num_views,
        "tokens a frame": grid.frame_tokens,
        "demo frames": 4 * (grid.demo_latents - 1) + 1,
        "actions": f"{config.horizon} x {config.action_dim}",
        **manifest["notes"],
    }


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Write a policy at half its size, its weights as float16: to ship it, or to carry it elsewhere."""

    policy: Annotated[Positional[Path], arg(metavar="POLICY")]
    """A policy that `hostbot train` exported."""
    out: Path
    """The folder to write; it must not exist."""
    execute: Annotated[int | None, arg(metavar="STEPS")] = None
    """Note that it does best with so many steps of a chunk before it looks again; as before if not said."""
    noise: Annotated[float | None, arg(metavar="SCALE")] = None
    """Note how much noise, 0 to 1, its future and actions are best made from; as before if not said."""
    skip_future: bool | None = None
    """Note whether its actions are best made without the visual stage; as before if not said."""
    pace: Annotated[float | None, arg(metavar="FACTOR")] = None
    """Note how many times as fast as it was filmed a video is best played; as before if not said."""
    rests: Annotated[int | None, arg(metavar="STEPS")] = None
    """Note how many control steps, before the pace, are best kept of a person's rests; as before if not said."""

    def run(self) -> None:
        """Read, round, write."""
        from hostbot.policy.bundle import pack

        pack(
            self.policy,
            self.out,
            execute=self.execute,
            noise=self.noise,
            skip_future=self.skip_future,
            pace=self.pace,
            rests=self.rests,
        )
        size = sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file())
        print(f"{self.out}: {size / 1e6:.1f} MB")


VERBS: tuple[type, ...] = (Init, Info, Pack)
