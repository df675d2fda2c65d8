"""Make lerobot 0.4.4 importable beside a newer torch, and give it a video decoder of our own.

Runs only inside .venv-oracle. torchvision's wheel is made for the torch with CUDA; beside a CPU torch its own library
does not load, and the two operators it then looks for at import are declared here. The decoders lerobot 0.4.4 knows
are gone from torchvision or need a system FFmpeg: there is one here. Nothing else is replaced.
"""

import av
import numpy as np
import torch

if torch.version.cuda is None:
    _library = torch.library.Library("torchvision", "DEF")
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def decode_video_frames(path, timestamps, tolerance_s, backend=None):
    """Frames nearest to the given seconds, refused beyond the tolerance: lerobot's rule."""
    wanted = np.asarray(timestamps, np.float32)
    best = [None] * len(wanted)
    distance = np.full(len(wanted), np.inf, np.float32)
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            gap = np.abs(wanted - np.float32(frame.time))
            for i in np.flatnonzero(gap < distance):
                best[i], distance[i] = frame, gap[i]
    if (distance >= tolerance_s).any():
        raise ValueError(f"{path}: {timestamps} are {distance} s away from the nearest frames")
    images = np.stack([frame.to_ndarray(format="rgb24") for frame in best])
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


import lerobot.datasets.lerobot_dataset as lerobot_dataset  # noqa: E402

lerobots_own_decode = lerobot_dataset.decode_video_frames
lerobot_dataset.decode_video_frames = decode_video_frames
LeRobotDataset = lerobot_dataset.LeRobotDataset
