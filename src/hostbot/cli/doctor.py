"""``hostbot doctor``: does everything hostbot needs work on this machine?"""

from __future__ import annotations

import importlib
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from hostbot.cli.show import print_json, print_table
from hostbot.types import BadInput


@dataclass(frozen=True)
class Finding:
    """One thing that was tried."""

    what: str
    works: bool
    detail: str
    needed: bool


def try_it(what: str, attempt: Callable[[], str], needed: bool = True) -> Finding:
    """Run an attempt; whatever it raises is the detail of a failure."""
    try:
        return Finding(what, True, attempt(), needed)
    except Exception as reason:
        return Finding(what, False, f"{type(reason).__name__}: {reason}".splitlines()[0][:160], needed)


def _version(module: str) -> Callable[[], str]:
    return lambda: str(getattr(importlib.import_module(module), "__version__", "present"))


def _torch() -> str:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    return f"{torch.__version__}, {device}, {torch.get_num_threads()} threads"


def _codecs() -> str:
    import numpy as np

    from hostbot.video import VideoCodec, VideoWriter, open_video

    codecs: tuple[VideoCodec, ...] = ("h264", "hevc", "av1")
    with tempfile.TemporaryDirectory() as folder:
        for codec in codecs:
            path = Path(folder) / f"{codec}.mp4"
            with VideoWriter(path, (64, 64), 10, codec=codec) as writer:
                for level in range(5):
                    writer.write(np.full((64, 64, 3), 40 * level, np.uint8))
            with open_video(path) as reader:
                levels = reader.frames(range(5)).mean((1, 2, 3))
            if abs(levels - 40 * np.arange(5)).max() > 4:
                raise BadInput(f"{codec} came back as grey levels {levels.round(1).tolist()}")
    return f"write and read back {', '.join(codecs)}"


def _rendering() -> str:
    import hostbot.sim  # chooses how MuJoCo draws  # noqa: F401 # isort: skip
    import mujoco

    scene = "<mujoco><worldbody><light pos='0 0 3'/><geom size='.1' rgba='1 0 0 1'/></worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(scene)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 32, 32) as renderer:
        renderer.update_scene(data)
        if renderer.render().max() == 0:
            raise BadInput("the picture is black")
    return f"MuJoCo {mujoco.__version__} renders with MUJOCO_GL={os.environ.get('MUJOCO_GL', 'default')}"


@dataclass(frozen=True)
class Doctor:
    """Try everything hostbot needs (Python, torch, video codecs, headless rendering) and say what does not work."""

    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Try and print."""
        findings = [
            try_it("python", platform.python_version),
            try_it("torch", _torch),
            try_it("pyarrow", _version("pyarrow")),
            try_it("video", _codecs),
            try_it("rendering", _rendering, needed=False),
            try_it("rerun", _version("rerun"), needed=False),
        ]
        if self.json:
            print_json([asdict(finding) for finding in findings])
        else:
            state = {
                (True, True): "works",
                (True, False): "works",
                (False, True): "FAILS",
                (False, False): "missing",
            }
            rows = [(f.what, state[f.works, f.needed], f.detail) for f in findings]
            print_table("hostbot doctor", ["", "", ""], rows)
        if failing := [f.what for f in findings if f.needed and not f.works]:
            raise BadInput(f"these do not work here: {', '.join(failing)}")


VERBS = (Doctor,)
