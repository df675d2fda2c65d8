"""``hostbot reproduce``: the tiny weights from nothing, in pieces that each fit ten minutes on one GPU.

A piece needs nothing of those before it but what they learned (a VAE, a policy, one file of statistics); the data it
learns from it records itself, from seeds of its own. So pieces can run on one machine or on a fresh one each, and a
piece that was stopped goes on where it stood.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
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
    """States of an episode that are learned from."""
    sketches: int = 96
    """Scenes a task that matching is learned from, each sketched in two or three pictures."""
    shown: int = 24
    """Human videos a task that they are matched with, each of a variant of its own."""
    stray: float = 1.0
    """How far recorded robots stray from their way, and get back."""
    seen: int = 2
    """Episodes a task that the VAE learns from."""
    clips: int = 20_000
    vae_batch: int = 128
    chroma: float = 3.0
    """How much more the VAE's errors in colour count."""
    patch: int = 2
    """Latents along a token's side."""
    batch: int = 512
    shared: int = 4
    lr: float = 5e-4
    point: float = 0.5
    human_share: float = 0.6
    validate_every: int = 400
    trials: int = 20
    execute: int = 8
    """Steps of a chunk before the robot looks again."""
    films: int = 8
    suite: str = "novel"


SMALL = Recipe(
    families=("press",), robot=4, human=2, variants=2, states=4, sketches=4, shown=2, seen=1, clips=40, vae_batch=2,
    batch=8, validate_every=10, trials=1, films=1, suite="train",
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
    """Of each piece; 9.5, or 2.5 with --small."""
    seed: int = 0
    """Other seeds give other data and other weights."""
    workers: int = 0
    """Processes that simulate and decode; as many as there are cores if 0."""
    small: bool = False
    """Every step in small, to see that it works here (eleven minutes on two cores): nothing is learned."""
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
        minutes = self.minutes or (2.5 if self.small else 9.5)
        for piece in (p for p in PIECES if p in self.pieces):
            steps = Steps(self.out / "pieces" / piece, minutes)
            maker = Maker(
                out=self.out, piece=piece, steps=steps, recipe=recipe, workers=workers, seed=self.seed
            )
            print(f"{piece}:", flush=True)
            try:
                getattr(maker, {"try": "attempt"}.get(piece, piece))()
            finally:
                steps.drop()
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
            self.run_of("see"), "--chroma", recipe.chroma, "--clips", recipe.clips, "--batch", recipe.vae_batch,
            "--minutes", self.steps.left(), "--fit", "--validate-every", recipe.validate_every, "--workers",
            self.workers, "--seed", self.seed, *self.again("see"),
        )  # fmt: skip

    def match(self) -> None:
        """Which thing of its own scene is the one that is shown: many scenes, at their decisive moments."""
        recipe, seed = self.recipe, self.first_seed
        words = ["train", "match", "--text-dropout", 0.7]
        self.held_out(("human",), words, variants=1, states=2)
        self.record("record-robot", "varied", recipe.sketches, "robot", recipe.shown, seed, "--sketch")
        self.record("record-human", "varied", recipe.shown, "human", recipe.shown, seed)
        self.learn(("human",), words, states=2, decisive=1.0)

    def act(self) -> None:
        """Stage 1: all losses."""
        self.policy(1)

    def refine(self) -> None:
        """Stage 2: the same in other scenes."""
        self.policy(2)

    def policy(self, stage: int) -> None:
        """A stage of the policy, from where the piece before it ended."""
        recipe, seed, bodies = self.recipe, self.first_seed, ("human", "robot")
        self.seen_with()
        words = [
            "train", "policy", "--stage", stage, "--from", self.run_of(self.before()), "--point", recipe.point,
            "--demo-dropout", 0.1, "--text-dropout", 0.5,
        ]  # fmt: skip
        self.held_out(bodies, words, variants=0, states=recipe.states)
        self.record("record-robot", "varied", recipe.robot, "robot", recipe.variants, seed)
        self.record("record-human", "varied", recipe.human, "human", recipe.variants, seed)
        self.learn(bodies, words, states=recipe.states, decisive=0.5)

    def attempt(self) -> None:
        """Closed-loop success in scenes of other seeds, from one human video a task."""
        recipe = self.recipe
        few: list[object] = ["--families", *recipe.families] if recipe.families else []
        self.steps.do(
            "eval", "eval", "--policy", self.run_of(self.before()) / "policy", "--suite", recipe.suite, *few,
            "--trials", recipe.trials, "--execute", recipe.execute, "--films", recipe.films, "--workers", self.workers,
            "--out", self.out / "eval",
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
        self, name: str, folder: str, episodes: int, body: str, variants: int, first_seed: int, *more: object
    ) -> None:
        """Episodes of all training tasks."""
        few: list[object] = ["--families", *self.recipe.families] if self.recipe.families else []
        self.steps.do(
            name, "sim", "record", "--out", self.data / folder, "--episodes-per-task", episodes, "--embodiment", body,
            "--variants", variants, "--stray", self.recipe.stray, "--first-seed", first_seed, "--workers", self.workers,
            *few, *more,
        )  # fmt: skip

    def seen_with(self) -> Path:
        """The VAE."""
        vae = self.run_of("see") / "vae"
        if not vae.exists():
            raise BadInput(f"{self.piece} needs a VAE, and {self.out} has none: run the piece see first")
        return vae

    def held_out(self, bodies: Sequence[str], words: Sequence[object], variants: int, states: int) -> None:
        """Scenes that nothing is learned from but what actions are normalised by.

        While the rest is recorded, layers are fused for them: the run that learns finds them in the compiler's cache.
        """
        self.seen_with()
        statistics, held_out = self.out / "statistics.json", self.data / "held-out"
        first_seed = _HELD_OUT + 20_000 * PIECES.index(self.piece)
        self.record("record-held-out", "held-out", 2, "both", variants, first_seed)
        if not statistics.exists():
            self.steps.do("statistics", "data", "stats", held_out / "robot", "--horizon", 16, "--overwrite")
            aside = statistics.with_suffix(".tmp")
            shutil.copyfile(held_out / "robot/meta/hostbot/statistics.json", aside)
            os.replace(aside, statistics)
        self.store("held-out", bodies, states, 0.5)
        shutil.rmtree(self.data / "fuse", ignore_errors=True)
        self.steps.begin(
            "fuse", *words, *self.settings("held-out", bodies), "--steps", 2, "--out", self.data / "fuse"
        )

    def store(self, folder: str, bodies: Sequence[str], states: int, decisive: float) -> None:
        """Couple and encode what was recorded."""
        data = self.data / folder
        self.steps.do(
            f"pairs-{folder}", "data", "pairs", data / "robot", "--human", data / "human", "--out",
            data / "split.json", "--validation", 0, "--overwrite",
        )  # fmt: skip
        for body in bodies:
            self.steps.do(
                f"samples-{folder}-{body}", "train", "samples", "--robot", data / "robot", "--human", data / "human",
                "--split", data / "split.json", "--vae", self.seen_with(), "--statistics",
                self.out / "statistics.json", "--cameras", "bench", "--labels", "events", "--body", body, "--demos", 1,
                "--states", states, "--decisive", decisive, "--workers", self.workers, "--out", data / "samples" / body,
            )  # fmt: skip

    def settings(self, folder: str, bodies: Sequence[str]) -> list[object]:
        """What a run is told of its samples and itself."""
        recipe = self.recipe
        shares = [recipe.human_share, round(1 - recipe.human_share, 3)] if len(bodies) == 2 else [1.0]
        return [
            "--samples", *(self.data / folder / "samples" / body for body in bodies), "--weights", *shares, "--vae",
            self.seen_with(), "--batch", recipe.batch, "--shared", recipe.shared, "--lr", recipe.lr, "--optimiser",
            "muon", "--one-view", 0, "--patch", recipe.patch, "--seed", self.seed, "--compile", "True", "--graphs",
        ]  # fmt: skip

    def learn(self, bodies: Sequence[str], words: Sequence[object], states: int, decisive: float) -> None:
        """The piece's run, with all the time that is left."""
        recipe = self.recipe
        self.store("varied", bodies, states, decisive)
        self.steps.end("fuse")
        self.steps.do(
            "learn", *words, *self.settings("varied", bodies), "--validation", self.data / "held-out/samples/human",
            "--validate-every", recipe.validate_every, "--out", self.run_of(self.piece), "--fit", "--save-every", 2000,
            "--minutes", self.steps.left(0.2), *self.again(self.piece),
        )  # fmt: skip


VERBS: tuple[type, ...] = (Reproduce,)
