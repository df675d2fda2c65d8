"""Which small VAE learns most in a minute: shapes, products and losses side by side on the same clips.

    hostbot sim record --out FOLDER --episodes-per-task 1 --workers 16
    python benchmarks/vae.py FOLDER --minutes 0.7           # every variant so long; CPU: --variants 8x 16x --clips 200

``error`` is the mean absolute error on held-out clips, of 255; ``of_things`` the same where pixels stand out from those
around them (the tenth that does most): a table is easy, a button five pixels wide is what matters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import torch
from diffusers import AutoencoderKLWan

from hostbot.data.clips import collect_clips
from hostbot.data.sources import open_source
from hostbot.model.vae import channels_last, tiny_vae
from hostbot.train.vae import VaeLoss, contrast, to_pixels


def coarse_vae() -> AutoencoderKLWan:
    """16x and 64 channels: as many numbers a token as 8x and 16 channels, at a quarter of the places."""
    shape = {"base_dim": 32, "decoder_base_dim": 48, "z_dim": 64, "patch_size": 4, "scale_factor_spatial": 16}
    channels = {"in_channels": 48, "out_channels": 48, "latents_mean": [0.0] * 64, "latents_std": [1.0] * 64}
    vae = AutoencoderKLWan.from_config({**tiny_vae().config, **shape, **channels})
    with torch.no_grad():
        vae.quant_conv.bias[vae.config.z_dim :] = -6.0
    return vae


@dataclass(frozen=True)
class Variant:
    coarse: bool = False
    bfloat16: bool = False
    channels_last: bool = False
    focus: float = 0.0
    lr: float = 2e-3


VARIANTS = {
    "8x": Variant(),
    "8x bf16": Variant(bfloat16=True),
    "8x bf16 last": Variant(bfloat16=True, channels_last=True),
    "8x focus": Variant(focus=1.0),
    "8x focus 3": Variant(focus=3.0),
    "16x": Variant(coarse=True),
    "16x bf16": Variant(coarse=True, bfloat16=True),
    "16x bf16 last focus": Variant(coarse=True, bfloat16=True, channels_last=True, focus=1.0),
}


def learn(variant: Variant, clips: torch.Tensor, held_out: torch.Tensor, args: Any) -> dict[str, Any]:
    """Train for the minutes given, with a rate that falls with the clock."""
    device = clips.device
    torch.manual_seed(0)
    module = VaeLoss(coarse_vae() if variant.coarse else tiny_vae(), focus=variant.focus).to(device)
    if variant.channels_last:
        channels_last(module.vae)
    optimiser = torch.optim.AdamW(module.parameters(), weight_decay=0.0, fused=device.type == "cuda")
    generator, rows = torch.Generator(device).manual_seed(0), torch.Generator().manual_seed(0)
    begun, steps, first = time.perf_counter(), 0, 0.0
    while (share := (time.perf_counter() - begun) / (60 * args.minutes)) < 1:
        batch = clips[torch.randint(len(clips), (args.batch,), generator=rows).to(device)]
        for group in optimiser.param_groups:
            group["lr"] = variant.lr * min(1.0, (steps + 1) / 50) * (1 - 0.97 * share)
        with torch.autocast(device.type, torch.bfloat16, enabled=variant.bfloat16):
            loss = module(batch, generator)["total"]
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        if steps == 4:
            loss.item()
            first = time.perf_counter()
        steps += 1
    loss.item()
    pace = (steps - 5) * args.batch / max(1e-9, time.perf_counter() - first)
    return {
        "steps": steps,
        "clips_per_s": round(pace, 1),
        **judge(module, held_out),
        **encoding(module, held_out),
    }


@torch.no_grad()
def judge(module: VaeLoss, held_out: torch.Tensor) -> dict[str, float]:
    plain, things = [], []
    for clips in held_out.split(16):
        pixels = to_pixels(clips)
        rebuilt = module.vae.decode(module.vae.encode(pixels).latent_dist.mode()).sample.float().clamp(-1, 1)
        apart = 127.5 * (rebuilt - pixels).abs().mean(1)
        stands_out = contrast(pixels)[:, 0]
        limit = stands_out.flatten().kthvalue(int(0.9 * stands_out.numel())).values
        plain.append(apart.mean())
        things.append(apart[stands_out > limit].mean())
    return {
        "error": round(float(torch.stack(plain).mean()), 3),
        "of_things": round(float(torch.stack(things).mean()), 3),
    }


@torch.no_grad()
def encoding(module: VaeLoss, clips: torch.Tensor) -> dict[str, float]:
    """Frames a second of encoding alone, in float32 and bfloat16."""
    found, pixels = {}, to_pixels(clips)
    for name, half in (("float32", False), ("bfloat16", True)):
        with torch.autocast(clips.device.type, torch.bfloat16, enabled=half):
            call = lambda: module.vae.encode(pixels)  # noqa: E731
            call()
            milliseconds = min(measure.wall_ms(call, clips.device) for _ in range(3))
        found[f"encode_frames_per_s_{name}"] = round(1e3 * pixels.shape[0] * pixels.shape[2] / milliseconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with the datasets robot and human")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--minutes", type=float, default=0.7, help="of each variant")
    parser.add_argument("--clips", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sources = [open_source(args.data / body, None) for body in ("robot", "human")]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "clips.npy"
        all_clips = torch.from_numpy(
            collect_clips(sources, args.clips + 64, 9, (1, 8), (64, 64), 0, path).copy()
        )
    clips, held_out = all_clips[64:].to(device), all_clips[:64].to(device)
    found = {}
    for name in args.variants:
        found[name] = learn(VARIANTS[name], clips, held_out, args)
        print(name, found[name], flush=True)
    about = {"benchmark": "vae", "commit": measure.commit(), "hardware": measure.hardware(device)}
    settings = {"minutes": args.minutes, "batch": args.batch, "clips": args.clips}
    measure.save(args.out, f"vae-{device.type}", about | settings | {"variants": found}, quiet=True)


if __name__ == "__main__":
    main()
