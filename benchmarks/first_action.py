"""From a phone's video to the robot's first action, process start included: ``hostbot do`` from nothing, on two cores.

The video: 10 s, 1080p, 30 fps on average with a clock that wanders (phones have no fixed rate), stored on its side with
a rotation flag, H.264 at about 17 Mb/s with grain, sound. ``--policy`` names a policy; without, one of the tiny preset
with untrained weights is made: speed does not depend on their values.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import torch
from measure import commit, hardware, save

sys.path.pop(
    0
)  # this folder's names (kernels, models) are also those of packages that transformers looks for
STAGES = ("begun", "loaded", "scene", "remembered", "acquired", "first_action")


def phone_video(path: Path, task_name: str, seconds: float = 10.0, seed: int = 0) -> None:
    """A person doing a task, as a phone held upright would store it."""
    from hostbot.sim.catalogue import task
    from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, demonstrate

    rng = np.random.default_rng(seed)
    demo, _, _ = demonstrate(task(task_name), seed, DemonstratorConfig(size=270))
    frames = demo.views[VIEW]
    count, clock = int(30 * seconds), Fraction(1, 90_000)
    ticks = np.cumsum(rng.choice([2400, 3000, 3000, 3000, 3600], count))
    grain = [rng.normal(0, 6, (1080, 1920, 1)) for _ in range(4)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.codec_context.width, stream.codec_context.height = 1920, 1080
        stream.codec_context.pix_fmt, stream.codec_context.time_base = "yuv420p", clock
        stream.codec_context.bit_rate = 17_000_000
        stream.codec_context.options = {"preset": "veryfast", "g": "30"}
        stream.set_display_rotation(90)
        sound = container.add_stream("aac", rate=44100)
        for number in range(count):
            shown = frames[min(number * len(frames) // count, len(frames) - 1)]
            tall = np.repeat(np.repeat(shown, 4, 0), 4, 1)  # 1080 x 1080, then a border above and below
            upright = np.full((1920, 1080, 3), 90, np.uint8)
            upright[420:1500] = tall
            side = np.rot90(upright, -1).astype(np.float32) + grain[number % 4]
            frame = av.VideoFrame.from_ndarray(side.clip(0, 255).astype(np.uint8), format="rgb24")
            frame.pts, frame.time_base = int(ticks[number]), clock
            container.mux(stream.encode(frame))
        for begin in range(0, int(44100 * seconds), 1024):
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            tone.sample_rate, tone.pts = 44100, begin
            container.mux(sound.encode(tone))
        container.mux(sound.encode(None))
        container.mux(stream.encode(None))


def untrained(folder: Path) -> None:
    """A policy of the tiny preset as training would export it, weights at random."""
    from hostbot.data.stats import ACTION, RELATIVE, STATE, FeatureStats, Statistics
    from hostbot.model.host import HostModel
    from hostbot.model.text import HashedWords
    from hostbot.model.vae import LatentCodec, tiny_vae
    from hostbot.policy.bundle import PolicySpec, write_bundle
    from hostbot.presets import tiny

    torch.manual_seed(0)
    config, vae = tiny(), tiny_vae()
    low, high = (-1.0,) * 20, (1.0,) * 20
    rows = dict.fromkeys(("mean", "std", "q10", "q50", "q90"), (0.0,) * 20)
    feature = FeatureStats(min=low, max=high, q01=low, q99=high, count=100, **rows)
    statistics = Statistics(
        format=1, fingerprint="untrained", num_episodes=1, num_frames=100, num_removed=0,
        horizon=config.data.horizon, embodiment=config.data.embodiment,
        features=dict.fromkeys((STATE, ACTION, RELATIVE), feature),
    )  # fmt: skip
    text = HashedWords(dim=config.model.video.text_dim, length=config.model.text_length)
    spec = PolicySpec(
        name="untrained", embodiment=config.data.embodiment, image_size=config.data.image_size,
        video_stride=config.data.video_stride, text_encoder=text.identity,
        codec=LatentCodec(vae).identity, cascade=config.cascade,
    )  # fmt: skip
    write_bundle(folder, model=HostModel(config.model), spec=spec, statistics=statistics, vae=vae)


def timed(policy: Path, video: Path, task_name: str, folder: Path) -> dict[str, float]:
    """Seconds of every stage of one run that has never seen the video."""
    environment = {**os.environ, "HOME": str(folder)}  # no cache of latents, no memory
    command = [
        sys.executable,
        "-m",
        "hostbot",
        "do",
        "put it there",
        "--policy",
        str(policy),
        "--task",
        task_name,
    ]
    launched = time.time()
    done = subprocess.run(
        [*command, "--video", str(video), "--memory", str(folder / "memory"), "--json", "--device", "cpu"],
        check=True, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    at = json.loads(done.stdout)["unix_s"]
    marks = [launched, *(at[name] for name in STAGES)]
    found = {name: b - a for name, a, b in zip(("start", *STAGES[1:]), marks[:-1], marks[1:], strict=True)}
    return {**found, "first_action_after": marks[-1] - launched}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--task", default="place_in-purple_plum-grey_pot")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        video, policy = Path(folder) / "phone.mp4", arguments.policy or Path(folder) / "policy"
        phone_video(video, arguments.task)
        if arguments.policy is None:
            untrained(policy)
        rows = [
            timed(policy, video, arguments.task, Path(tempfile.mkdtemp(dir=folder)))
            for _ in range(arguments.runs)
        ]
        size = video.stat().st_size
    result = {
        "hardware": hardware(torch.device("cpu")), "commit": commit(), "seed": 0, "runs": len(rows),
        "policy": "untrained" if arguments.policy is None else arguments.policy.name,
        "video_bytes": size, "load_average": os.getloadavg()[0],
        "median_s": {k: round(float(np.median([r[k] for r in rows])), 2) for k in rows[0]},
        "largest_s": {k: round(float(max(r[k] for r in rows)), 2) for k in rows[0]},
    }  # fmt: skip
    save(arguments.out, "first_action", result)


if __name__ == "__main__":
    main()
