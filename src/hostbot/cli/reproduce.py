"""``hostbot reproduce``: the tiny weights from nothing, in pieces that each fit ten minutes on one GPU.

A piece needs nothing of those before it but what they learned (a VAE, a policy, one file of statistics); the data it
learns from it records itself, from seeds of its own. So pieces can run on one machine or on a fresh one each, and a
piece that was stopped goes on where it stood.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from tyro.conf import arg

from hostbot.cli.steps import Steps
from hostbot.config import read_json, to_dict, write_json
from hostbot.types import BadInput

Piece = Literal["see", "match", "act", "refine", "try"]
PIECES: tuple[Piece, ...] = get_args(Piece)
_BEFORE: dict[Piece, Piece] = {"act": "match", "refine": "act", "try": "refine"}
_HELD_OUT = 900_000
"""First seed of scenes that nothing is learned from."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How much of everything."""

    families: tuple[str, ...] = ()
    robot: int = 24
    """Robot episodes a task and piece."""
    human: int = 12
    variants: int = 12
    states: int = 8
    """States of an episode that are learned from; matching takes half as many of twice the episodes."""
    seen: int = 2
    """Episodes a task that the VAE learns from."""
    clips: int = 20_000
    vae_batch: int = 128
    batch: int = 512
    shared: int = 4
    lr: float = 5e-4
    point: float = 0.5
    human_share: float = 0.6
    validate_every: int = 400
    trials: int = 20
    films: int = 8
    suite: str = "novel"


SMALL = Recipe(
    families=("press",), robot=4, human=2, variants=2, states=4, seen=1, clips=40, vae_batch=2, batch=8,
    validate_every=10, trials=1, films=1, suite="train",
)  # fmt: skip
"""Every step in small: proves the way, learns nothing."""


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Record, see, match, act, refine and try: the tiny policy from nothing but seeds."""

    out: Path
    """Folder for everything."""
    pieces: tuple[Piece, ...] = PIECES
    """Which pieces, in their order; those that are done are left alone."""
    minutes: Annotated[float | None, arg(metavar="M")] = None
    """Of each piece; 9.5, or 1.6 with --small."""
    seed: int = 0
    """Other seeds give other data and other weights."""
    workers: int = 0
    """Processes that simulate and decode; as many as there are cores if 0."""
    small: bool = False
    """Every step in small, to see that it works here (eight minutes on two cores): nothing is learned."""
    keep_data: bool = False
    """Keep what a piece recorded and encoded when it is done."""

    def run(self) -> None:
        """One piece after the other."""
        recipe = SMALL if self.small else Recipe()
        workers = self.workers or os.cpu_count() or 1
        if self.seed < 0 or self.seed > 7:
            raise BadInput(
                f"--seed is 0 to 7, so that no scene is held out and learned from; got {self.seed}"
            )
        _claim(self.out, recipe, self.seed)
        minutes = self.minutes or (1.6 if self.small else 9.5)
        for piece in (p for p in PIECES if p in self.pieces):
            steps = Steps(self.out / "pieces" / piece, minutes)
            maker = Maker(
                out=self.out, piece=piece, steps=steps, recipe=recipe, workers=workers, seed=self.seed
            )
            print(f"{piece}:", flush=True)
            getattr(maker, {"try": "attempt"}.get(piece, piece))()
            if not self.keep_data:
                shutil.rmtree(maker.data, ignore_errors=True)
        print(f"wrote {self.out}")


def _claim(out: Path, recipe: Recipe, seed: int) -> None:
    """Note what is made here, or refuse to go on with something else: done pieces would pass for its own."""
    path, now = out / "recipe.json", {"recipe": to_dict(recipe), "seed": seed}
    if path.exists() and read_json(path) != json.loads(json.dumps(now)):
        raise BadInput(
            f"{out} was begun with another --seed, with or without --small, or by another version: use another --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, now)


@dataclass(frozen=True, kw_only=True)
class Maker:
    """The steps of one piece."""

    out: Path
    piece: Piece
    steps: Steps
    recipe: Recipe
    workers: int
    seed: int

    @property
    def data(self) -> Path:
        """What the piece records and encodes."""
        return self.steps.folder / "data"

    @property
    def first_seed(self) -> int:
        """Scenes of a piece are its own, and the run's: 20,000 for each piece, 100,000 for each run."""
        return 10_000 + 100_000 * self.seed + 20_000 * PIECES.index(self.piece)

    def see(self) -> None:
        """The VAE, from a few episodes of every training task."""
        recipe = self.recipe
        self.record("record", "seen", recipe.seen, "both", recipe.variants, self.first_seed)
        self.steps.do(
            "vae", "train", "vae", "--data", self.data / "seen/robot", self.data / "seen/human", "--out",
            self.run_of("see"), "--clips", recipe.clips, "--batch", recipe.vae_batch, "--minutes", self.steps.left(),
            "--fit", "--validate-every", recipe.validate_every, "--workers", self.workers, "--seed", self.seed,
            *self.again("see"),
        )  # fmt: skip

    def match(self) -> None:
        """Which thing of its own scene is the one that is shown: many scenes, where it is decided."""
        words = self.learning(more=2, decisive=1.0)
        self.steps.do(
            "match", "train", "match", *words, "--text-dropout", 0.7, "--minutes", self.steps.left(0.2),
            *self.again("match"),
        )  # fmt: skip

    def act(self) -> None:
        """Stage 1: all losses."""
        self.policy(1)

    def refine(self) -> None:
        """Stage 2: the same in other scenes."""
        self.policy(2)

    def policy(self, stage: int) -> None:
        """A stage of the policy, from where the piece before it ended."""
        words = self.learning()
        self.steps.do(
            "policy", "train", "policy", "--stage", stage, *words, "--from", self.run_of(self.before()), "--point",
            self.recipe.point, "--demo-dropout", 0.1, "--text-dropout", 0.5, "--compile", "True", "--minutes",
            self.steps.left(0.2), *self.again(self.piece),
        )  # fmt: skip

    def attempt(self) -> None:
        """Closed-loop success in scenes of other seeds, from one human video a task."""
        recipe = self.recipe
        few: list[object] = ["--families", *recipe.families] if recipe.families else []
        self.steps.do(
            "eval", "eval", "--policy", self.run_of(self.before()) / "policy", "--suite", recipe.suite, *few,
            "--trials", recipe.trials, "--films", recipe.films, "--workers", self.workers, "--out", self.out / "eval",
        )  # fmt: skip

    def run_of(self, piece: str) -> Path:
        """Where a piece's run lies."""
        return self.out / piece

    def before(self) -> Piece:
        """The last piece before this one that left a policy."""
        piece = _BEFORE[self.piece]
        while not (self.run_of(piece) / "policy").exists():
            if piece not in _BEFORE:
                raise BadInput(
                    f"{self.piece} goes on from a policy, and {self.out} has none: run the pieces before it first"
                )
            piece = _BEFORE[piece]
        return piece

    def again(self, piece: str) -> list[object]:
        """What to say to go on with a run that was stopped."""
        return ["--resume"] if any((self.run_of(piece) / "checkpoints").glob("step-*")) else []

    def record(
        self, name: str, folder: str, episodes: int, body: str, variants: int, first_seed: int
    ) -> None:
        """Episodes of all training tasks."""
        few: list[object] = ["--families", *self.recipe.families] if self.recipe.families else []
        self.steps.do(
            name, "sim", "record", "--out", self.data / folder, "--episodes-per-task", episodes, "--embodiment", body,
            "--variants", variants, "--first-seed", first_seed, "--workers", self.workers, *few,
        )  # fmt: skip

    def learning(self, more: int = 1, decisive: float = 0.5) -> list[object]:
        """Record, couple and encode; what a run that learns from it is to be told."""
        recipe, data = self.recipe, self.data
        vae, statistics = self.run_of("see") / "vae", self.out / "statistics.json"
        if not vae.exists():
            raise BadInput(f"{self.piece} needs a VAE, and {self.out} has none: run the piece see first")
        for body, episodes in (("robot", recipe.robot), ("human", recipe.human)):
            self.record(
                f"record-{body}", "varied", more * episodes, body, more * recipe.variants, self.first_seed
            )
        held_out = _HELD_OUT + 20_000 * PIECES.index(self.piece)
        self.record("record-held-out", "held-out", 1, "both", 0, held_out)
        if not statistics.exists():
            self.steps.do(
                "statistics", "data", "stats", data / "held-out/robot", "--horizon", 16, "--overwrite"
            )
            aside = statistics.with_suffix(".tmp")
            shutil.copyfile(data / "held-out/robot/meta/hostbot/statistics.json", aside)
            os.replace(aside, statistics)
        for folder in ("varied", "held-out"):
            self.steps.do(
                f"pairs-{folder}", "data", "pairs", data / folder / "robot", "--human", data / folder / "human",
                "--out", data / folder / "split.json", "--validation", 0, "--overwrite",
            )  # fmt: skip
        stores = {
            "human": ("varied", "human"),
            "robot": ("varied", "robot"),
            "held-out": ("held-out", "human"),
        }
        for name, (folder, body) in stores.items():
            self.steps.do(
                f"samples-{name}", "train", "samples", "--robot", data / folder / "robot", "--human",
                data / folder / "human", "--split", data / folder / "split.json", "--vae", vae, "--statistics",
                statistics, "--cameras", "bench", "--labels", "events", "--body", body, "--demos", 1, "--states",
                recipe.states // more, "--decisive", decisive, "--workers", self.workers, "--out",
                data / "samples" / name,
            )  # fmt: skip
        return [
            "--samples", data / "samples/human", data / "samples/robot", "--weights", recipe.human_share,
            round(1 - recipe.human_share, 3), "--validation", data / "samples/held-out", "--validate-every",
            recipe.validate_every, "--vae", vae, "--out", self.run_of(self.piece), "--batch", recipe.batch, "--shared",
            recipe.shared, "--lr", recipe.lr, "--optimiser", "muon", "--one-view", 0, "--seed", self.seed, "--fit",
            "--save-every", 2000, "--graphs",
        ]  # fmt: skip


VERBS: tuple[type, ...] = (Reproduce,)
