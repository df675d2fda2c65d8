"""Perturbations of the robot's scene: light and colour, unseen instances, another room, a meddling hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from hostbot.sim.env import EnvConfig
from hostbot.sim.scene import SceneConfig
from hostbot.types import BadInput

Perturbation = Literal["none", "light", "objects", "scene", "disturb"]
PERTURBATIONS: tuple[str, ...] = get_args(Perturbation)


def perturbed(config: EnvConfig, kind: str, seed: int) -> EnvConfig:
    """A configuration with one perturbation, drawn by the seed."""
    if kind not in PERTURBATIONS:
        raise BadInput(f"there is no perturbation {kind!r}; choose from {', '.join(PERTURBATIONS)}")
    rng = np.random.default_rng([seed, PERTURBATIONS.index(kind)])
    if kind == "light":
        return replace(config, scene=relit(config.scene, rng))
    if kind == "objects":
        return replace(config, scene=replace(config.scene, unseen=True))
    if kind == "scene":
        return replace(config, scene=moved(config.scene, rng))
    if kind == "disturb":
        return replace(config, disturb=True)
    return config


def _rgb(values: np.ndarray) -> tuple[float, float, float]:
    return (float(values[0]), float(values[1]), float(values[2]))


def relit(scene: SceneConfig, rng: np.random.Generator) -> SceneConfig:
    """Darker or brighter, tinted, from another side."""
    level = float(rng.choice([rng.uniform(0.45, 0.65), rng.uniform(1.25, 1.5)]))
    tint = _rgb(rng.uniform(0.65, 1.0, 3))
    place = _rgb(
        np.array([rng.uniform(-0.5, 1.0), rng.choice([-1, 1]) * rng.uniform(0.4, 1.0), rng.uniform(0.6, 1.4)])
    )
    return replace(scene, light=level, light_rgb=tint, light_pos=place, hue=0.10)


def moved(scene: SceneConfig, rng: np.random.Generator) -> SceneConfig:
    """Another table in another room, the camera a little elsewhere."""
    camera = np.array(scene.camera_pos) + rng.uniform(-0.05, 0.05, 3)
    return replace(
        scene,
        table_rgb=_rgb(rng.uniform(0.15, 0.9, 3)),
        floor_rgb=_rgb(rng.uniform(0.1, 0.8, 3)),
        camera_pos=_rgb(camera),
        light_pos=_rgb(rng.uniform((-0.4, -0.8, 0.9), (0.9, 0.8, 1.6))),
    )
