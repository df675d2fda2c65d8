"""What the real lerobot does, told to the tests in npz and JSON; runs inside .venv-oracle.

worker.py read ROOT OUT.npz [--offsets a,b,c]   load ROOT, save every item (with delta_timestamps where
offsets are given) worker.py write IN.npz ROOT                     write the episodes of IN.npz with create
/ add_frame / save_episode
"""

import json
import sys

import numpy as np
import torch
from shim import LeRobotDataset


def read(root: str, out: str, offsets: list[int]) -> None:
    plain = LeRobotDataset("local/oracle", root=root)
    fps, cameras = plain.fps, plain.meta.video_keys
    delta = {key: [o / fps for o in offsets] for key in ["action", *cameras]} if offsets else None
    dataset = LeRobotDataset("local/oracle", root=root, delta_timestamps=delta) if delta else plain
    saved: dict[str, list[np.ndarray]] = {}
    tasks = []
    for i in range(len(dataset)):
        for key, value in dataset[i].items():
            if key == "task":
                tasks.append(value)
            elif isinstance(value, torch.Tensor):
                array = value.numpy()
                if key in cameras:
                    array = np.moveaxis(np.rint(array * 255).astype(np.uint8), -3, -1)
                saved.setdefault(key, []).append(array)
    meta = {
        "tasks": tasks,
        "num_episodes": dataset.num_episodes,
        "fps": fps,
        "robot_type": dataset.meta.robot_type,
        "lengths": [int(e["length"]) for e in dataset.meta.episodes],
        "stats": sorted(dataset.meta.stats),
        "image_std": {k: np.ravel(dataset.meta.stats[k]["std"]).tolist() for k in cameras},
    }
    np.savez(
        out,
        meta=np.frombuffer(json.dumps(meta).encode(), np.uint8),
        **{k: np.stack(v) for k, v in saved.items()},
    )


def write(source: str, root: str) -> None:
    with np.load(source, allow_pickle=False) as given:
        episodes = json.loads(given["meta"].tobytes())["tasks"]
        arrays = {key: given[key] for key in given.files if key != "meta"}
    size = arrays["0/left"].shape[1:3]
    features = {
        "observation.state": {"dtype": "float32", "shape": (20,), "names": [f"s{i}" for i in range(20)]},
        "action": {"dtype": "float32", "shape": (20,), "names": None},
        "touch": {"dtype": "float32", "shape": (2, 3), "names": None},
        "observation.images.left": {
            "dtype": "video",
            "shape": (*size, 3),
            "names": ["height", "width", "channels"],
        },
        "observation.images.still": {
            "dtype": "image",
            "shape": (*size, 3),
            "names": ["height", "width", "channels"],
        },
    }
    dataset = LeRobotDataset.create(
        "local/oracle", 30, features, root=root, robot_type="oracle", use_videos=True
    )
    for number, tasks in enumerate(episodes):
        for n, task in enumerate(tasks):
            frame = {name: arrays[f"{number}/{name}"][n] for name in ("observation.state", "action", "touch")}
            for camera in ("left", "still"):
                frame[f"observation.images.{camera}"] = arrays[f"{number}/{camera}"][n]
            dataset.add_frame(frame | {"task": task})
        dataset.save_episode()
    dataset.finalize()


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2], sys.argv[3], [int(o) for o in sys.argv[5].split(",")] if len(sys.argv) > 4 else [])
    else:
        write(sys.argv[2], sys.argv[3])
