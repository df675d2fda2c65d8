"""What a thing on the table is made of, and what a script and a predicate may ask of it.

A thing's frame sits at the middle of its underside, z up, x along its length. Sizes are metres.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

Rgba = tuple[float, float, float, float]

COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.85, 0.12, 0.12),
    "green": (0.13, 0.62, 0.22),
    "blue": (0.12, 0.30, 0.85),
    "yellow": (0.95, 0.82, 0.10),
    "orange": (0.96, 0.50, 0.08),
    "purple": (0.52, 0.18, 0.70),
    "white": (0.93, 0.93, 0.90),
    "black": (0.10, 0.10, 0.12),
    "brown": (0.45, 0.27, 0.13),
    "pink": (0.95, 0.50, 0.68),
    "cyan": (0.15, 0.75, 0.80),
    "grey": (0.55, 0.56, 0.58),
}


@dataclass(frozen=True, kw_only=True)
class Grip:
    """A way to take hold: where the tool goes, which way it closes, how wide the thing is there."""

    at: tuple[float, float, float]
    yaw: float = 0.0
    """Direction of closing in the thing's frame; half turns are the same grip."""
    width: float
    part: str = ""
    """The moving part (drawer handle, knob ...) whose frame this grip is given in."""
    style: str = ""
    """A name for scripts that want this way of holding; they get no named grip otherwise."""
    spare: float = 0.03
    """How much wider than the thing the jaws open on the way in."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the world knows of a built thing."""

    radius: float
    """Footprint: nothing else is put nearer to its middle than this."""
    height: float
    grips: tuple[Grip, ...] = ()
    yaws: tuple[float, float] = (-np.pi, np.pi)
    """Headings it may have on the table."""
    ahead: float = 0.0
    """How much nearer than others it must stand, for a part that reaches away."""
    far: bool = False
    """Stands at the far side of the table, out of the way."""
    floor: float = 0.0
    """Height of the surface things rest on, inside or on top."""
    inner: float = 0.0
    """Radius of what it can take in."""
    round: bool = False
    """It rolls: its underside is wherever it touches down."""
    flat: bool = False
    """So flat that hands and other things may pass over it freely."""
    sides: tuple[float, float] = (0.0, 0.0)
    """Half lengths of the footprint along x and y, where it is not round."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """How one instance of a kind differs from the next."""

    rgb: tuple[float, float, float]
    size: float = 1.0
    unseen: bool = False
    """An instance that no training episode shows: another size, and a band of another colour."""
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))


class Builder:
    """Adds the geoms of one thing to a body; a thin layer over ``MjSpec`` with the bench's contact settings."""

    def __init__(self, spec: mujoco.MjSpec, body: mujoco.MjsBody, name: str, look: Look) -> None:
        self.spec, self.body, self.name, self.look = spec, body, name, look
        self.s = look.size
        self.sides = 6 if look.unseen else 8
        if look.unseen:
            self._pattern()

    def _pattern(self) -> None:
        """Stripes or checks in two shades of the thing's colour."""
        marks = ("mjBUILTIN_CHECKER", "mjBUILTIN_GRADIENT")
        builtin = getattr(mujoco.mjtBuiltin, marks[int(self.look.rng.integers(2))])
        other = [c * 0.45 + 0.25 for c in self.look.rgb]
        self.spec.add_texture(
            name=f"{self.name}/pattern",
            type=mujoco.mjtTexture.mjTEXTURE_CUBE,
            builtin=builtin,
            rgb1=list(self.look.rgb),
            rgb2=other,
            width=16,
            height=16 * 6,
        )
        material = self.spec.add_material(name=f"{self.name}/pattern")
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = f"{self.name}/pattern"

    def free(self) -> None:
        """Let the thing move."""
        self.body.add_freejoint(name=self.name)

    def rgba(self, shade: float = 1.0) -> Rgba:
        """The thing's colour, lighter or darker."""
        r, g, b = (float(np.clip(c * shade, 0, 1)) for c in self.look.rgb)
        return (r, g, b, 1.0)

    def _geom(self, kind: mujoco.mjtGeom, body: mujoco.MjsBody | None, kw: dict[str, Any]) -> mujoco.MjsGeom:
        settings: dict[str, Any] = {
            "rgba": self.rgba(),
            "density": 350.0,
            "friction": [0.8, 0.008, 0.0004],
            "condim": 3,
            "solref": [0.012, 1.0],
        }
        if self.look.unseen and "rgba" not in kw and not kw.get("ghost"):
            settings["material"] = f"{self.name}/pattern"
            settings["rgba"] = (1.0, 1.0, 1.0, 1.0)
        settings.update(kw)
        if settings.pop("ghost", False):
            settings.update(contype=0, conaffinity=0, mass=0.0, group=1)
            settings.pop("density", None)
        if "mass" in settings:
            settings.pop("density", None)
        return (body or self.body).add_geom(type=kind, **settings)

    def box(
        self, half: Sequence[float], pos: Sequence[float], body: mujoco.MjsBody | None = None, **kw: Any
    ) -> None:
        """A box by half lengths."""
        self._geom(mujoco.mjtGeom.mjGEOM_BOX, body, {"size": list(half), "pos": list(pos), **kw})

    def cylinder(
        self, radius: float, half: float, pos: Sequence[float], body: mujoco.MjsBody | None = None, **kw: Any
    ) -> None:
        """A cylinder along z, by radius and half height."""
        self._geom(mujoco.mjtGeom.mjGEOM_CYLINDER, body, {"size": [radius, half, 0], "pos": list(pos), **kw})

    def sphere(
        self, radius: float, pos: Sequence[float], body: mujoco.MjsBody | None = None, **kw: Any
    ) -> None:
        """A ball."""
        self._geom(mujoco.mjtGeom.mjGEOM_SPHERE, body, {"size": [radius, 0, 0], "pos": list(pos), **kw})

    def ellipsoid(
        self, half: Sequence[float], pos: Sequence[float], body: mujoco.MjsBody | None = None, **kw: Any
    ) -> None:
        """An ellipsoid by half lengths."""
        self._geom(mujoco.mjtGeom.mjGEOM_ELLIPSOID, body, {"size": list(half), "pos": list(pos), **kw})

    def capsule(
        self,
        start: Sequence[float],
        end: Sequence[float],
        radius: float,
        body: mujoco.MjsBody | None = None,
        **kw: Any,
    ) -> None:
        """A capsule between two points."""
        args = {"fromto": [*start, *end], "size": [radius, 0, 0], **kw}
        self._geom(mujoco.mjtGeom.mjGEOM_CAPSULE, body, args)

    def wall(self, radius: float, z: float, height: float, thick: float, **kw: Any) -> None:
        """An upright ring of boxes, its outer faces ``radius`` from the middle."""
        half = radius * np.tan(np.pi / self.sides)
        for k in range(self.sides):
            phi = 2 * np.pi * k / self.sides
            middle = radius - thick / 2
            pos = [middle * np.cos(phi), middle * np.sin(phi), z + height / 2]
            quat = [np.cos(phi / 2), 0, 0, np.sin(phi / 2)]
            self.box([thick / 2, half, height / 2], pos, quat=quat, **kw)

    def part(
        self,
        name: str,
        pos: Sequence[float],
        joint: mujoco.mjtJoint,
        axis: Sequence[float],
        limits: tuple[float, float],
        **kw: Any,
    ) -> mujoco.MjsBody:
        """A moving part on a joint; both are called ``thing/part``, and the joint alone holds them together."""
        body = self.body.add_body(name=f"{self.name}/{name}", pos=list(pos))
        self.spec.add_exclude(bodyname1=self.name, bodyname2=f"{self.name}/{name}")
        body.add_joint(
            name=f"{self.name}/{name}", type=joint, axis=list(axis), range=list(limits), limited=True, **kw
        )
        return body

    def mark(self, name: str, pos: Sequence[float], body: mujoco.MjsBody | None = None) -> None:
        """A named point, ``thing/name``, that scripts can aim at."""
        (body or self.body).add_site(
            name=f"{self.name}/{name}", pos=list(pos), size=[0.003, 0.003, 0.003], rgba=[0, 0, 0, 0]
        )


Kind = Callable[[Builder], Shape]


@dataclass(frozen=True, kw_only=True)
class Thing:
    """One object of a scene: its name in scripts, its kind and its colour."""

    name: str
    kind: Kind
    colour: str

    @property
    def words(self) -> str:
        """What an instruction calls it."""
        return self.name.replace("_", " ")


def thing(colour: str, kind: Kind, noun: str | None = None) -> Thing:
    """A thing named by its colour and kind, such as ``red_cup``."""
    return Thing(name=f"{colour}_{noun or kind.__name__}", kind=kind, colour=colour)


def rim(radius: float, height: float, thick: float, sides: int) -> tuple[Grip, ...]:
    """Grips across the wall of a vessel, one for each side."""
    grips = []
    for k in range(sides):
        phi = 2 * np.pi * k / sides
        r = radius - thick / 2
        grips.append(
            Grip(at=(r * np.cos(phi), r * np.sin(phi), height - 0.016), yaw=phi, width=thick, spare=0.036)
        )
    return tuple(grips)
