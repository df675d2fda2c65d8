"""Low-poly pictures, fast on a CPU: one GL context a process, no shadows, no multisampling.

Scenes are made of primitives, so what a renderer keeps of a model (fonts, targets) is the same for all of one size:
it is made once a process, not once an episode.

The scene graph is filled once a step and only the camera changes between views. A read waits until the GPU has drawn
all it was told to, so whoever needs no picture before the end exposes them one by one and has them developed together.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence

import mujoco
import numpy as np

from hostbot.types import Image

_context: dict[int, mujoco.GLContext] = {}
_kept: dict[tuple[int, int, int, bool], mujoco.MjrContext] = {}
"""Renderers of models without textures and meshes, by process, size and number of cameras."""
_exposed: dict[int, Painter] = {}
"""Whose pictures wait in a renderer, by its identity."""
MAX_SIZE = 1024
_ROWS, _TALL = 16, 1024
"""Steps that wait in a renderer at most, and pixels they are high together. Where in a target something is drawn
rounds pixels on edges, in a software renderer up to one of 200; beyond a height of 1,024 more."""


def _context_class() -> type[mujoco.GLContext]:
    """The context that ``MUJOCO_GL`` names, also where MuJoCo was imported before the choice was made."""
    backend = os.environ.get("MUJOCO_GL")
    if backend not in ("egl", "osmesa"):
        return mujoco.GLContext
    return importlib.import_module(f"mujoco.{backend}").GLContext


def _current() -> mujoco.GLContext:
    pid = os.getpid()
    if pid not in _context:
        _context[pid] = _context_class()(MAX_SIZE, MAX_SIZE)
        _context[pid].make_current()
    return _context[pid]


def _renderer(model: mujoco.MjModel, key: tuple[int, int, int, bool] | None) -> mujoco.MjrContext:
    """What draws a model; without a key it is the model's own."""
    if key is not None and key in _kept:
        return _kept[key]
    made = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
    if key is not None:
        _kept[key] = made
    return made


class Painter:
    """Draws the cameras of one compiled model."""

    def __init__(self, model: mujoco.MjModel, size: int, shadows: bool = False) -> None:
        _current()
        self._rows = max(1, min(_ROWS, _TALL // size))
        model.vis.global_.offwidth, model.vis.global_.offheight = size * model.ncam, size * self._rows
        self._model, self.size = model, size
        self._waiting: list[tuple[str, ...]] = []
        self._developed: list[dict[str, Image]] = []
        self._scene = mujoco.MjvScene(model, maxgeom=600)
        flags = self._scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        for off in ("mjRND_REFLECTION", "mjRND_SKYBOX", "mjRND_HAZE", "mjRND_FOG"):
            flags[getattr(mujoco.mjtRndFlag, off)] = False
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._standing = int(np.flatnonzero(model.cam_bodyid == 0)[0])
        self._perturb = mujoco.MjvPerturb()
        if not shadows:
            model.vis.quality.shadowsize = 0
        plain = not (model.nmesh or model.ntex or model.nhfield or model.nskin or model.nflex)
        self._key = (os.getpid(), model.ncam, size, shadows) if plain else None
        self._gl = _renderer(model, self._key)

    def draw(self, data: mujoco.MjData, cameras: Sequence[str]) -> dict[str, Image]:
        """One square picture for each named camera, drawn side by side and fetched in one read."""
        self.expose(data, cameras)
        self._read()
        return self._developed.pop()

    def expose(self, data: mujoco.MjData, cameras: Sequence[str]) -> None:
        """Draw what each named camera sees now, for :meth:`develop` to fetch."""
        other = _exposed.get(id(self._gl))
        if other is not None and other is not self:
            other._read()
        if len(self._waiting) == self._rows:
            self._read()
        _exposed[id(self._gl)] = self
        # Another scene of this process may have drawn since: the target is the context's, not the process's.
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gl)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        # The scene's headlight shines from the camera the scene is filled for: one that stands still, or a
        # wrist that turns away would darken the table in every view.
        self._camera.fixedcamid = self._standing
        mujoco.mjv_updateScene(
            self._model, data, self._option, self._perturb, self._camera, everything, self._scene
        )
        for place, name in enumerate(cameras):
            self._camera.fixedcamid = self._model.camera(name).id
            mujoco.mjv_updateCamera(self._model, data, self._camera, self._scene)
            corner = (place * self.size, len(self._waiting) * self.size)
            mujoco.mjr_render(mujoco.MjrRect(*corner, self.size, self.size), self._scene, self._gl)
        self._waiting.append(tuple(cameras))

    def develop(self) -> list[dict[str, Image]]:
        """All pictures exposed since the last time, in their order."""
        self._read()
        developed, self._developed = self._developed, []
        return developed

    def _read(self) -> None:
        """Fetch what waits, before anything else is drawn over it."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        del _exposed[id(self._gl)]
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gl)
        high, wide = self.size * len(waiting), self.size * max(map(len, waiting))
        sheet = np.empty((high, wide, 3), np.uint8)
        mujoco.mjr_readPixels(sheet, None, mujoco.MjrRect(0, 0, wide, high), self._gl)
        for row, cameras in enumerate(waiting):
            strip = sheet[row * self.size : (row + 1) * self.size][::-1]  # pixels come from below
            pictures = (strip[:, k * self.size : (k + 1) * self.size] for k in range(len(cameras)))
            self._developed.append(
                {name: np.ascontiguousarray(one) for name, one in zip(cameras, pictures, strict=True)}
            )

    def close(self) -> None:
        """Give the GL objects back, but for those that are kept for the next model; what waits is lost."""
        if _exposed.get(id(self._gl)) is self:
            del _exposed[id(self._gl)]
        self._waiting = []
        if self._key is None:
            self._gl.free()
