"""The bench's calibration against MuJoCo's own camera poses while the arms move."""

import mujoco
import numpy as np
import pytest

from hostbot.data.cameras import project
from hostbot.sim.cameras import bench_cameras
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv


def test_every_camera_projects_as_the_simulator_does():
    env = SimEnv(task(split().train[0]), EnvConfig(views=()))
    env.reset(seed=3)
    expert = env.expert()
    cameras = bench_cameras()
    assert {c.view for c in cameras} == {"left_wrist", "right_wrist", "third_person"}
    for step in range(13):
        env.advance(expert.act())
        if step % 6:
            continue
        mujoco.mj_forward(env.world.model, env.world.data)
        state = env.state()[None].astype(float)
        point = np.array([[0.3, 0.05, 0.02]])
        for camera in cameras:
            at, _ = project(camera, point, state, env.embodiment)
            data = env.world.data.camera(camera.view)
            local = np.array(data.xmat).reshape(3, 3).T @ (point[0] - data.xpos)
            focal = 0.5 / np.tan(np.radians(camera.fov_y) / 2)
            expected = [0.5 - focal * local[0] / local[2], 0.5 + focal * local[1] / local[2]]
            if local[2] < -0.01:
                assert at[0] == pytest.approx(expected, abs=2e-3), camera.view
