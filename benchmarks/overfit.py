"""Learn one synthetic pair by heart with the tiny model, then get it back from noise through the cascade.

    python benchmarks/overfit.py --minutes 12 --picture docs/overfit.png

A "human" (a skin-coloured bar over a dark table) carries a disc to a square; a "robot" (two grey fingers,
other colours, other placement) does the same. Five states of the robot's run are the training set. It shows
that the whole path works (VAE, losses, cascade, decoding); it says nothing about generalisation.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from PIL import Image, ImageDraw

from hostbot.model import checkpoint
from hostbot.model.host import Context, HostModel, Targets
from hostbot.model.sizes import tiny_model
from hostbot.model.text import HashedWords
from hostbot.model.vae import LatentCodec, calibrate, fit, load_vae, tiny_vae
from hostbot.policy.cascade import Cascade, CascadeConfig

SIZE, LENGTH = 64, 33
CAMERAS = ((0.0, 0.0, 1.0), (-0.3, 0.1, 1.6), (0.2, -0.2, 1.3))  # where each view looks and how closely


@dataclass(frozen=True)
class Scene:
    """One body in its own scene: where the disc starts and ends, and what everything looks like."""

    start: tuple[float, float]
    goal: tuple[float, float]
    table: tuple[float, float, float]
    disc: tuple[float, float, float]
    hand: tuple[float, float, float]
    fingers: bool


HUMAN = Scene((-0.5, -0.4), (0.5, 0.3), (0.25, 0.22, 0.20), (0.85, 0.25, 0.2), (0.90, 0.68, 0.55), False)
ROBOT = Scene((0.4, -0.5), (-0.4, 0.4), (0.75, 0.72, 0.66), (0.8, 0.2, 0.25), (0.35, 0.38, 0.45), True)


def path(scene: Scene, progress: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hand and disc at each progress: reach in the first third, carry in the second, leave in the last."""
    start, goal, home = np.array(scene.start), np.array(scene.goal), np.array([0.0, 0.8])
    reach, carry, leave = (np.clip(3 * progress[:, None] - k, 0, 1) for k in range(3))
    hand = home + reach * (start - home) + carry * (goal - start) + leave * (home - goal)
    return hand, start + carry * (goal - start)


def draw(scene: Scene, hand: np.ndarray, disc: np.ndarray, camera: tuple[float, float, float]) -> np.ndarray:
    """One frame of one view."""
    axis = (np.arange(SIZE) + 0.5) / SIZE * 2 - 1
    y, x = np.meshgrid(axis / camera[2] + camera[1], axis / camera[2] + camera[0], indexing="ij")
    frame = np.broadcast_to(np.array(scene.table), (SIZE, SIZE, 3)).copy()

    def paint(distance: np.ndarray, colour: tuple[float, float, float]) -> None:
        cover = np.clip(0.5 - distance * SIZE * camera[2] / 2, 0, 1)[..., None]
        frame[:] = cover * np.array(colour) + (1 - cover) * frame

    def box(cx: float, cy: float, w: float, h: float) -> np.ndarray:
        return np.maximum(np.abs(x - cx) - w, np.abs(y - cy) - h)

    paint(box(*scene.goal, 0.22, 0.22), (0.2, 0.45, 0.35))
    paint(np.hypot(x - disc[0], y - disc[1]) - 0.13, scene.disc)
    if scene.fingers:
        paint(box(hand[0] - 0.17, hand[1], 0.05, 0.2), scene.hand)
        paint(box(hand[0] + 0.17, hand[1], 0.05, 0.2), scene.hand)
    else:
        paint(box(hand[0], hand[1] + 0.45, 0.1, 0.45), scene.hand)
    return np.round(frame * 255).astype(np.uint8)


def film(scene: Scene, progress: np.ndarray) -> np.ndarray:
    """(views, frames, pixels)."""
    hands, discs = path(scene, progress)
    return np.stack([[draw(scene, h, d, c) for h, d in zip(hands, discs, strict=True)] for c in CAMERAS])


@dataclass(frozen=True)
class Pair:
    """The pair as the model sees it."""

    context: Context
    targets: Targets
    clips: np.ndarray
    demo: np.ndarray


def moved(record: Any, device: torch.device) -> Any:
    """A dataclass of tensors on another device."""
    tensors = {k: v.to(device) for k, v in vars(record).items() if isinstance(v, torch.Tensor)}
    return replace(record, **tensors)


def make_pair(codec: LatentCodec, config: Any) -> Pair:
    demo_time = np.linspace(0, 1, 4 * (config.grid.demo_latents - 1) + 1)
    demo = film(HUMAN, demo_time + 0.04 * np.sin(2 * np.pi * demo_time))
    progress = np.linspace(0, 1, LENGTH)
    robot, (hands, _) = film(ROBOT, progress), path(ROBOT, progress)
    states = np.arange(0, LENGTH - 4, 6)
    clips = np.stack([robot[:, t : t + 5] for t in states])
    latents = torch.stack([codec.encode_views(torch.from_numpy(clip)) for clip in clips])
    actions = np.zeros((len(states), config.horizon, config.action_dim), np.float32)
    for row, t in enumerate(states):
        ahead = np.minimum(t + 1 + np.arange(config.horizon), LENGTH - 1)
        actions[row, :, :2] = hands[ahead]
        actions[row, :, 9] = np.where((ahead > LENGTH / 3) & (ahead < 2 * LENGTH / 3), 1, -1)
    proprio = np.zeros((len(states), config.state_dim), np.float32)
    proprio[:, :2] = hands[states]
    batch = len(states)
    context = Context(
        observation=latents[:, :, :1],
        proprio=torch.from_numpy(proprio),
        text=HashedWords(config.video.text_dim, config.text_length).encode(
            ["put the disc on the square"] * batch
        ),
        demo=codec.encode_views(torch.from_numpy(demo))[None].expand(batch, -1, -1, -1, -1),
    )
    targets = Targets(
        p=torch.from_numpy(2 * progress[states] - 1).float(), o=latents[:, :, 1:], a=torch.from_numpy(actions)
    )
    return Pair(moved(context, codec.device), moved(targets, codec.device), clips, demo)


def train_codec(seconds: float, device: torch.device) -> LatentCodec:
    """Fit the tiny VAE to both bodies' frames."""
    torch.manual_seed(0)
    vae, rng, batch = tiny_vae().to(device), np.random.default_rng(0), 16 if device.type == "cuda" else 4
    films = [film(scene, np.linspace(0, 1, LENGTH)) for scene in (HUMAN, ROBOT)]
    views = np.concatenate(films).astype(np.float32) / 127.5 - 1

    def clips(share: float) -> Any:
        start = time.monotonic()
        while time.monotonic() - start < share * seconds:
            rows = [(rng.integers(len(views)), rng.integers(LENGTH - 4)) for _ in range(batch)]
            clip = np.stack([views[v, t : t + 5] for v, t in rows])
            yield torch.from_numpy(clip).permute(0, 4, 1, 2, 3).to(device)

    errors = list(fit(vae, clips(0.7), lr=2e-3)) + list(fit(vae, clips(0.3), lr=3e-4))
    print(f"VAE: {len(errors)} steps, error {errors[0]:.3f} -> {np.mean(errors[-10:]):.4f}", flush=True)
    calibrate(vae, torch.from_numpy(views[:, :29]).permute(0, 4, 1, 2, 3).to(device))
    return LatentCodec(vae, device)


def train_model(model: HostModel, pair: Pair, seconds: float) -> list[tuple[float, float, float]]:
    """AdamW on the one batch; returns the three losses of every step."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-2)
    generator, losses, start = torch.Generator(pair.targets.p.device).manual_seed(0), [], time.monotonic()
    while (spent := time.monotonic() - start) < seconds:
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1.0, (len(losses) + 1) / 30, 0.02 + 1.5 * (1 - spent / seconds))
        found = model.loss(pair.context, pair.targets, generator)
        optimiser.zero_grad(set_to_none=True)
        found.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append((found.loc.item(), found.obs.item(), found.act.item()))
        if len(losses) % 20 == 1:
            shown = " ".join(f"{value:.4f}" for value in losses[-1])
            print(f"step {len(losses)} {spent:.0f} s: loc, obs, act {shown}", flush=True)
    return losses


def picture(pair: Pair, predicted: np.ndarray, p: np.ndarray, out: Path, view: int = 0) -> None:
    """A row a state: the demo at the estimated p, the present, the true future, the predicted one."""
    rows, zoom, edge = (1, 2, 3), 2, 22
    cell = SIZE * zoom
    sheet = Image.new("RGB", (10 * cell + 3 * edge, len(rows) * (cell + 6) + edge), "white")
    pen = ImageDraw.Draw(sheet)
    starts = [0, cell + edge, 2 * cell + 2 * edge, 6 * cell + 3 * edge]
    titles = ("demo at p", "now", "true next four frames", "predicted from noise")
    for x, title in zip(starts, titles, strict=True):
        pen.text((x + 3, 5), title, fill="black")
    for line, state in enumerate(rows):
        at = round(float(p[state] + 1) / 2 * (pair.demo.shape[1] - 1))
        frames = [pair.demo[view, at], *pair.clips[state, view], *predicted[state, view, 1:]]
        places = [
            starts[0],
            starts[1],
            *(starts[2] + i * cell for i in range(4)),
            *(starts[3] + i * cell for i in range(4)),
        ]
        for x, frame in zip(places, frames, strict=True):
            tile = Image.fromarray(frame).resize((cell - 2, cell - 2), Image.Resampling.NEAREST)
            sheet.paste(tile, (x, edge + line * (cell + 6)))
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out, optimize=True)


def evaluate(
    model: HostModel, codec: LatentCodec, pair: Pair, config: CascadeConfig
) -> tuple[dict[str, Any], Any]:
    """Errors of one cycle from noise, and the frames it predicts."""
    cascade = Cascade(model, config, batch=len(pair.targets.p))
    cascade.instruct(pair.context.text)
    cascade.watch(pair.context.demo)
    noise = cascade.draw(torch.Generator().manual_seed(1))
    out = cascade.act(pair.context.observation, pair.context.proprio, noise)
    found: dict[str, Any] = {
        "p_error_of_window": round(float((out.p - pair.targets.p).abs().mean() / 2), 4),
        "confidence": None if out.confidence.isnan().any() else round(float(out.confidence.mean()), 3),
        "action_error": round(float((out.a - pair.targets.a)[..., [0, 1, 9]].abs().mean()), 4),
    }
    frames = None
    if out.o is not None:
        frames = decode(codec, pair.context.observation, out.o)
        found["frame_error_of_255"] = round(frame_error(pair, frames), 2)
    return found, (frames, out.p.cpu().numpy())


def decode(codec: LatentCodec, observation: torch.Tensor, future: torch.Tensor) -> np.ndarray:
    """Five frames of every view of every state."""
    latents = torch.cat([observation, future], dim=2)
    return np.stack([codec.decode_views(z, len(CAMERAS)).cpu().numpy() for z in latents])


def frame_error(pair: Pair, frames: np.ndarray) -> float:
    """Mean absolute difference to the true next four frames, of 255."""
    return float(np.abs(frames[:, :, 1:].astype(float) - pair.clips[:, :, 1:]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--picture", type=Path, default=Path("docs/overfit.png"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument(
        "--keep", type=Path, help="a folder for the trained model and VAE; used again if it is there"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = tiny_model()
    history: list[tuple[float, float, float]] = []
    if args.keep and args.keep.is_dir():
        codec = LatentCodec(load_vae(args.keep), device)
        model = checkpoint.load(args.keep / "model", device=device)
        history = checkpoint.read_manifest(args.keep / "model")["notes"]["losses"]
        pair = make_pair(codec, config)
    else:
        codec = train_codec(60 * args.minutes / 3, device)
        pair = make_pair(codec, config)
        torch.manual_seed(0)
        model = HostModel(config).to(device)
        history = train_model(model, pair, 60 * args.minutes * 2 / 3)
        if args.keep:
            codec.vae.save_pretrained(args.keep / "vae")
            checkpoint.save(model, args.keep / "model", {"losses": history})
    found, (predicted, p) = evaluate(model, codec, pair, CascadeConfig())
    picture(pair, predicted, p, args.picture)
    losses = np.array(history)
    still = np.repeat(pair.clips[:, :, :1], 5, axis=2)
    names = ("loc", "obs", "act")
    result = {
        "benchmark": "overfit",
        "commit": measure.commit(),
        "hardware": measure.hardware(device),
        "states": len(pair.targets.p),
        "steps": len(losses),
        "losses_first_10": dict(zip(names, losses[:10].mean(0).round(4).tolist(), strict=True)),
        "losses_last_50": dict(zip(names, losses[-50:].mean(0).round(4).tolist(), strict=True)),
        "from_noise": found,
        "to_compare": {
            "frame_error_of_the_vae_alone": round(
                frame_error(pair, decode(codec, pair.context.observation, pair.targets.o)), 2
            ),
            "frame_error_of_holding_still": round(frame_error(pair, still), 2),
            "action_error_of_holding_still": round(
                float((pair.targets.a[..., :2] - pair.context.proprio[:, None, :2]).abs().mean()), 4
            ),
        },
        "options": {
            "steps_4_10_10": evaluate(model, codec, pair, CascadeConfig(steps_p=4, steps_o=10, steps_a=10))[
                0
            ],
            "steps_1_4_4": evaluate(model, codec, pair, CascadeConfig(steps_p=1, steps_o=4, steps_a=4))[0],
            "one_localisation": evaluate(model, codec, pair, CascadeConfig(num_localisations=1))[0],
        },
    }
    measure.save(args.out, "overfit-tiny", result)


if __name__ == "__main__":
    main()
