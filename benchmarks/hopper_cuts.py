"""Cuts of the Hopper product worth trying on an H200, and the jobs that check and time them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from hostbot.model.kernels import cuts as tables
from hostbot.model.kernels import hopper
from hostbot.model.kernels.hopper import HopperTiling
from hostbot.model.kernels.ways import widths

MULTIPROCESSORS = 132
MOST_BLOCKS = {1: 132, 2: 132, 4: 120}
"""Blocks that run at once by size of cluster; 32 clusters of 4 took two rounds on an H200, 30 took one."""
TILES = {
    147: [
        (128, 1, 8, 4),
        (256, 2, 4, 4),
        (192, 1, 5, 4),
        (112, 1, 8, 5),
        (128, 1, 7, 5),
        (128, 1, 6, 6),
        (128, 1, 9, 3),
        (96, 1, 8, 5),
        (144, 1, 7, 4),
        (216, 2, 4, 4),
        (256, 2, 5, 3),
    ],
    8: [
        (64, 1, 24, 12),
        (128, 1, 12, 8),
        (128, 1, 12, 12),
        (72, 1, 20, 16),
        (112, 1, 13, 13),
        (256, 2, 6, 6),
        (128, 1, 8, 4),
    ],
    32: [
        (64, 1, 16, 16),
        (128, 1, 10, 8),
        (128, 1, 8, 4),
        (72, 1, 16, 16),
        (96, 1, 12, 12),
        (64, 1, 8, 8),
        (32, 1, 16, 16),
    ],
}
"""Outputs, blocks, stages of weights, stages of rows."""
SHAPES = {
    147: [(9248, 3072), (3072, 3072), (14336, 3072), (3072, 14336)],
    8: [(9248, 3072), (3072, 3072), (14336, 3072), (3072, 14336)],
    32: [(9248, 1024), (1024, 3072), (3072, 1024), (4096, 1024), (1024, 4096)],
}
"""Outputs, inputs of a pass's products."""
GELUS = [(14336, 3072), (4096, 1024)]
PASSES = {"o": 147, "a": 32, "p": 8}


@dataclass(frozen=True)
class Triton:
    """A cut of the Triton product as the table has it: names and numbers."""

    cut: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Job:
    rows: int
    outputs: int
    inputs: int
    way: HopperTiling | Triton | int
    """A number: the library's product in so many shares."""
    overlap: bool = True
    packed: bool = False
    timed: bool = True

    @property
    def gelu(self) -> bool:
        return (self.outputs, self.inputs) in GELUS

    @property
    def code(self) -> str:
        """The name of its machine code."""
        assert isinstance(self.way, HopperTiling)
        numbers = "-".join(str(int(v)) for k, v in asdict(self.way).items() if k != "shares")
        return f"{hopper._tokens(self.rows)}-{numbers}-{self.gelu:d}{self.overlap:d}{self.packed:d}"


def table_rows(rows: int) -> int:
    """The most rows that the same row of the table serves."""
    return sum(widths(rows))


def cuts(rows: int, outputs: int, inputs: int) -> Iterator[HopperTiling]:
    """What fills most multiprocessors once."""
    gelu = (outputs, inputs) in GELUS
    for of_tile, blocks, w_stages, x_stages in TILES[rows]:
        for cluster in (2, 1, 4) if rows > 32 else (1, 2):
            tiles = -(-outputs // (of_tile * cluster)) * cluster
            most = MOST_BLOCKS[cluster]
            fill = most // tiles
            for shares in {1} if gelu else {fill}:
                enough = (
                    0.7 if rows > 32 else 0.4
                ) * MULTIPROCESSORS <= tiles * shares <= most and inputs // 64 >= 3 * shares
                tiling = HopperTiling(
                    outputs=of_tile,
                    blocks=blocks,
                    w_stages=w_stages,
                    x_stages=x_stages,
                    cluster=cluster,
                    shares=shares,
                    half=True,
                )
                if enough and tiling.fits(table_rows(rows), outputs, inputs):
                    yield tiling


def in_use(rows: int, outputs: int, inputs: int) -> list[Triton]:
    """The Triton cut that the table holds for such a product, if it holds one."""
    key = {"rows": table_rows(rows), "outputs": outputs, "inputs": inputs}
    found = [row for row in tables.read()["products"] if key.items() <= row.items() and "tiling" in row]
    return [Triton(tuple(row["tiling"].items())) for row in found]


def jobs() -> list[Job]:
    """The library, what may show a fault, and all cuts."""
    library, odd, found = [], [], []
    plain = HopperTiling(outputs=128, w_stages=8, x_stages=4)
    for rows in (1, 8, 147):
        for way in (
            plain,
            replace(plain, cluster=2, shares=3),
            replace(plain, outputs=72, cluster=4, half=True),
            replace(plain, outputs=72),
        ):
            way = replace(way, x_stages=3)
            odd.append(Job(rows=rows, outputs=1000, inputs=776, way=way, timed=False))
    wide = HopperTiling(outputs=256, blocks=2, w_stages=4, x_stages=4, cluster=2, shares=2)
    odd.append(Job(rows=147, outputs=1000, inputs=776, way=wide, timed=False))
    for rows, shapes in SHAPES.items():
        for outputs, inputs in shapes:
            shape = {"rows": rows, "outputs": outputs, "inputs": inputs}
            gelu = (outputs, inputs) in GELUS
            library += [Job(**shape, way=shares) for shares in ((1,) if gelu else (1, 2, 4))]
            library += [Job(**shape, way=way) for way in in_use(rows, outputs, inputs)]
            ways = list(cuts(rows, outputs, inputs))
            found += [Job(**shape, way=way) for way in ways]
    return library + odd + found
