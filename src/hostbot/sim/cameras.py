"""The bench's cameras as calibration: one that stands, one on each wrist."""

from __future__ import annotations

import mujoco
import numpy as np

from hostbot.sim.arms import RobotConfig, add_robot
from hostbot.sim.scene import SceneConfig, base_spec
from hostbot.types import Camera


def bench_cameras(scene: SceneConfig | None = None, robot: RobotConfig | None = None) -> tuple[Camera, ...]:
    """Where every camera of the robot's environment is, wrist cameras in the frames of their tools."""
    spec = base_spec(scene or SceneConfig())
    add_robot(spec, robot or RobotConfig())
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return tuple(_camera(model, data, index) for index in range(model.ncam))


def _camera(model: mujoco.MjModel, data: mujoco.MjData, index: int) -> Camera:
    name, at = model.camera(index).name, np.array(data.cam_xpos[index])
    axes = np.array(data.cam_xmat[index]).reshape(3, 3)
    limb = name.removesuffix("_wrist") if name.endswith("_wrist") else ""
    if limb:
        tool = data.site(f"{limb}_tool")
        turn = np.array(tool.xmat).reshape(3, 3)
        at, axes = turn.T @ (at - tool.xpos), turn.T @ axes
    x, y, z = at.tolist()
    a, b, c, d, e, f, g, h, i = axes.ravel().tolist()
    return Camera(
        view=name,
        limb=limb,
        position=(x, y, z),
        rotation=(a, b, c, d, e, f, g, h, i),
        fov_y=float(model.cam_fovy[index]),
    )
