"""How much of what things are is left in a VAE's latents: their colour and kind, read by a small network.

    python benchmarks/vae_probe.py RUN/vae ANOTHER/vae       # a minute on two cores

Scenes are variants of training tasks. The network reads the latents around a thing's place in the third-person view,
and for comparison the pixels there; it is tried on scenes it has not learned from.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import commit, hardware, save
from torch import Tensor, nn

from hostbot.data.cameras import project
from hostbot.model.vae import LatentCodec, load_vae
from hostbot.sim.cameras import bench_cameras
from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import VIEW
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.layout import NoRoom
from hostbot.sim.variants import varied
from hostbot.video import fit_frames

SIZE = (64, 64)
REACH = 12
"""Pixels around a thing's place, on each side."""
Seen = tuple[np.ndarray, list[tuple[float, float, str, str]]]


def scene(number: int) -> Seen | None:
    """A picture, and where which things are in it: across, down, colour, kind."""
    names = split().train
    one = varied(task(names[7 * number % len(names)]), number, 9000 + number)
    env = SimEnv(one, EnvConfig(views=(VIEW,)))
    try:
        env.begin(9000 + number)
    except NoRoom:
        return None
    assert env.world is not None
    picture = fit_frames(env.pictures()[VIEW][None], SIZE)[0]
    half = [np.array([0, 0, env.world.shapes[t.name].height / 2]) for t in one.scene]
    places = np.stack([env.world.pose(t.name).pos for t in one.scene]) + np.stack(half)
    camera = next(camera for camera in bench_cameras() if camera.view == VIEW)
    at, inside = project(camera, places, np.tile(env.state(), (len(places), 1)), env.embodiment)
    env.close()
    inside &= ((at > 0.06) & (at < 0.94)).all(1)
    listed = zip(at.tolist(), one.scene, inside, strict=True)
    return picture, [(x, y, t.colour, t.kind.__name__) for (x, y), t, seen in listed if seen]


def latents_of(folder: Path, pictures: np.ndarray) -> Tensor:
    """One latent frame of every picture."""
    codec = LatentCodec(load_vae(folder))
    parts = []
    for part in torch.from_numpy(pictures).split(64):
        latents = codec.encode_views(part[:, None])
        parts.append(latents.unflatten(2, (len(part), -1)).permute(2, 1, 0, 3, 4)[:, 0])
    return torch.cat(parts)


def around(maps: Tensor, seen: Sequence[Seen], reach: int) -> Tensor:
    """What lies around every thing, and where in its cell the thing is."""
    rows, columns = maps.shape[2:]
    wide = F.pad(maps.float(), (reach, reach, reach, reach))
    out = []
    for number, (_, things) in enumerate(seen):
        for x, y, _, _ in things:
            i, j = int(y * rows), int(x * columns)
            patch = wide[number, :, i : i + 2 * reach + 1, j : j + 2 * reach + 1].flatten()
            out.append(torch.cat([patch, torch.tensor([y * rows - i, x * columns - j])]))
    return torch.stack(out)


def _latents_around(folder: Path, pictures: np.ndarray, seen: Sequence[Seen]) -> Tensor:
    """As far around a thing as with pixels, whatever a latent's size."""
    maps = latents_of(folder, pictures)
    return around(maps, seen, REACH * maps.shape[3] // SIZE[1])


def read(inputs: Tensor, labels: Tensor, learned: Tensor, seed: int) -> float:
    """How often the network is right about things of scenes it has not learned from, after the last round."""
    torch.manual_seed(seed)
    inputs = (inputs - inputs[learned].mean(0)) / (inputs[learned].std(0) + 1e-4)
    net = nn.Sequential(
        nn.Dropout(0.1),
        nn.Linear(inputs.shape[1], 256),
        nn.GELU(),
        nn.Dropout(0.3),
        nn.Linear(256, int(labels.max()) + 1),
    )
    optimiser = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.05)
    rows = torch.nonzero(learned)[:, 0]
    for _ in range(25):
        for part in rows[torch.randperm(len(rows))].split(64):
            loss = F.cross_entropy(net(inputs[part]), labels[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    net.eval()
    with torch.no_grad():
        right = net(inputs[~learned]).argmax(1) == labels[~learned]
    return round(float(right.float().mean()), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vae", type=Path, nargs="+", help="folders of VAEs, each told apart by its path")
    parser.add_argument("--scenes", type=int, default=1500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    flags = parser.parse_args()
    with ProcessPoolExecutor(flags.workers, get_context("spawn")) as pool:
        seen = [one for one in pool.map(scene, range(flags.scenes), chunksize=25) if one is not None]
    pictures = np.stack([picture for picture, _ in seen])
    things = [(number, *thing[2:]) for number, (_, listed) in enumerate(seen) for thing in listed]
    learned = torch.tensor([number < 0.8 * len(seen) for number, _, _ in things])
    labels = {
        what: torch.from_numpy(np.unique([t[column] for t in things], return_inverse=True)[1])
        for column, what in ((1, "colour"), (2, "kind"))
    }
    pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255
    inputs = {"pixels": around(pixels, seen, REACH)}
    inputs |= {str(folder): _latents_around(folder, pictures, seen) for folder in flags.vae}
    found: dict[str, Any] = {
        name: {what: read(values, wanted, learned, flags.seed) for what, wanted in labels.items()}
        for name, values in inputs.items()
    }
    result = {
        "benchmark": "vae_probe",
        "commit": commit(),
        "hardware": hardware(torch.device("cpu")),
        "seed": flags.seed,
        "scenes": len(seen),
        "things": len(things),
        "colours": int(labels["colour"].max()) + 1,
        "kinds": int(labels["kind"].max()) + 1,
        "right": found,
    }
    save(flags.out, "vae-probe-cpu", result)


if __name__ == "__main__":
    main()
