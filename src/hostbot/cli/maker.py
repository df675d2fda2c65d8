"""The steps of each piece of ``hostbot reproduce``: what it records, what it encodes, how it learns.

Pieces that act learn from rounds of recordings. The first is small and waited for; further ones are recorded and
encoded while the GPU learns and join the run as they come, so that neither waits for the other. Every few rounds the
policy as it is by then is let loose on training tasks, and experts show what to do where it got to.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from hostbot.cli.recipe import Recipe
from hostbot.cli.steps import Steps
from hostbot.config import read_json, write_json
from hostbot.types import BadInput

Piece = Literal["see", "match", "act", "refine", "polish", "try"]
PIECES: tuple[Piece, ...] = get_args(Piece)
ACTING: tuple[Piece, ...] = ("act", "refine", "polish")
ROUNDS = 20
"""Of a piece at most: scenes of more would be those of the next piece."""
GIVEN = "given"
_BEFORE: dict[Piece, Piece] = {"act": "match", "refine": "act", "polish": "refine", "try": "polish"}
AFTER: dict[Piece, Piece] = {"see": "match", "match": "act"}
"""Which piece is prepared while one learns; one that acts goes on with its own."""
_HELD_OUT = 900_000
"""First seed of scenes that nothing is learned from."""
_APART = 1000
"""Seeds between two rounds."""
_DRILLS = ("--drills", "--sketch")
_LED_WAVE = 128
"""Robots that are led at once."""
_KEEP = 0.3
"""Minutes of a piece for whatever comes after learning."""


def done(out: Path, piece: Piece) -> set[str]:
    """The steps of a piece that are done."""
    folder = out / "pieces" / piece
    return set(Steps(folder, 0.0).commands) if folder.exists() else set()


def goes_on(out: Path, piece: Piece) -> bool:
    """Whether a piece was begun and has not ended."""
    return (out / "pieces" / piece).exists() and not {"vae", "learn"} & done(out, piece)


def has_gpu() -> bool:
    """Whether layers can be fused here."""
    import torch

    return torch.cuda.is_available()


@dataclass(frozen=True, kw_only=True)
class Maker:
    """The steps of one piece."""

    out: Path
    piece: Piece
    steps: Steps
    recipe: Recipe
    workers: int
    seed: int
    round: int = 0
    """Of the piece's recordings; the first is waited for, and smaller."""
    ahead: bool = False
    """Prepare the next piece while this one learns."""
    small: bool = False
    source: Path | None = None
    prepare_only: bool = False

    @property
    def data(self) -> Path:
        """What the piece records and encodes."""
        return self.steps.folder / "data"

    @property
    def first_seed(self) -> int:
        """Scenes of a piece are its own, and the run's: 20,000 for each piece, 100,000 for each run."""
        return 10_000 + 100_000 * self.seed + 20_000 * PIECES.index(self.piece) + _APART * self.round

    @property
    def held_out_seed(self) -> int:
        """Scenes that the piece learns nothing from."""
        return _HELD_OUT + 20_000 * PIECES.index(self.piece)

    def make(self) -> None:
        """The whole piece."""
        if self.piece == "try":
            self.attempt()
            return
        if {"vae", "learn"} & set(self.steps.commands):
            return
        if self.piece != "see":
            self.seen_with()
            self.before_it()
        self.prepare()
        if self.piece == "see":
            self.see()
        else:
            self.learn()

    # What is learned from ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Everything the piece begins with; samples of it, too, once there is a VAE, and what matching fuses."""
        if self.piece == "see":
            self.record("record", "seen", self.recipe.seen, "both", self.first_seed, *self.tasks())
            return
        first = self.of_round(0)
        self.record_held_out()
        if not self.has_vae():
            self.record_drills() if self.piece == "match" else first.record_round()
            return
        if self.piece == "match":
            self.fuse(self.held_out())
            self.record_drills()
            self.drills()
            self.steps.end("fuse")
            return
        if self.judged_by_earlier() is None:
            self.begin_store("held-out", **self.judging())
        if not self.samples():
            first.make_round()
        self.held_out()

    def record_held_out(self) -> None:
        """What the piece is judged by, and in matching what actions are normalised by."""
        seed = self.held_out_seed
        if self.piece == "match":
            self.record("record-scale", "scale", 1, "robot", seed, *self.tasks())
            self.record("record-held-out", "held-out", self.recipe.held_out, "both", seed, *_DRILLS)
        elif self.judged_by_earlier() is None:
            self.record("record-held-out", "held-out", 1, "both", seed, *self.tasks())

    def judged_by_earlier(self) -> Path | None:
        """Held-out samples of an earlier piece that acts, where they are still there."""
        earlier = ACTING[: ACTING.index(self.piece)] if self.piece in ACTING else ()
        return next((found for piece in earlier if (found := self.made(piece, "held-out"))), None)

    def held_out(self) -> Path:
        """Samples the piece is judged by."""
        return self.judged_by_earlier() or self.store("held-out", **self.judging())

    def judging(self) -> dict[str, Any]:
        """How held-out recordings are made into samples."""
        if self.piece == "match":
            return {"demos": 1, "states": 1, "decisive": 1.0}
        return {"demos": 1, "states": self.recipe.judged, "decisive": 0.5}

    def record_drills(self) -> None:
        """What matching learns from."""
        recipe, seed = self.recipe, self.first_seed
        self.record("record-human", "drills", recipe.shown, "human", seed, *_DRILLS)
        self.record("record-robot", "drills", recipe.drills, "robot", seed, *_DRILLS)

    def drills(self) -> Path:
        """Samples that matching learns from."""
        return self.store("drills", demos=1, states=1, decisive=1.0, mirror=True)

    # Rounds --------------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> Path:
        """Where rounds of recordings are made; a run that learns looks for samples below."""
        return self.data / "rounds"

    def of_round(self, number: int) -> Maker:
        """The steps of one of the piece's rounds."""
        steps = Steps(self.rounds / f"{number:02d}", self.steps.minutes, self.steps.begun)
        return replace(self, steps=steps, round=number)

    def go_on_recording(self) -> None:
        """Round after round, each encoded while the next is recorded, until the piece's time is over or this is."""
        made = [self.of_round(number) for number in range(1, ROUNDS)]
        before: Maker | None = None
        try:
            for one in made:
                if self.steps.seconds / 60 > self.recipe.recording * self.steps.minutes:
                    break
                recorded = one.try_to_record()
                if before is not None:
                    before.encode_round()
                before = one if recorded else None
            if before is not None:
                before.encode_round()
        finally:
            for one in made:
                one.steps.drop()

    def try_to_record(self) -> bool:
        """Record a round and begin to encode it; one that fails is told and left, for there are others."""
        try:
            self.record_round()
            self.begin_round()
        except BadInput as reason:
            print(f"round {self.round} is left as it is: {reason}", flush=True)
            return False
        return True

    def make_round(self) -> None:
        """Record a round and encode it."""
        self.record_round()
        self.encode_round()

    @property
    def is_led(self) -> bool:
        """Whether robots of the round are where a policy has led them; never in the first. Decided once."""
        if self.round % self.recipe.led_every != self.recipe.led_every // 2 or (self.data / "tasks").exists():
            return False
        return self.leader() is not None

    def folders(self) -> dict[str, dict[str, Any]]:
        """What a round consists of, and how it is made into samples."""
        if self.is_led:
            return {"led": self.acting(led=True)}
        return {"tasks": self.acting(), "acted": self.acting()}

    def record_round(self) -> None:
        """Whole executions of tasks and drills, or what experts do where the policy has got to."""
        recipe, seed = self.recipe, self.first_seed
        if self.is_led:
            self.record_led()
            return
        robot, acted = map(self.share, (recipe.robot, recipe.acted))
        midway = ("--midway", recipe.midway)
        self.record_people()
        self.record("record-robot", "tasks", robot, "robot", seed, *midway, *self.balanced())
        if self.has_vae():
            self.begin_store("tasks", **self.acting())
        self.record("record-acted", "acted", acted, "both", seed, "--drills", *midway)

    def share(self, count: int) -> int:
        """Of what a round has, so much is in this one."""
        return count if self.round else max(1, round(self.recipe.first * count))

    def record_people(self) -> None:
        """People's videos of a round's tasks."""
        self.record(
            "record-human", "tasks", self.share(self.recipe.human), "human", self.first_seed, *self.balanced()
        )

    def balanced(self) -> tuple[object, ...]:
        """Training tasks, those of small families more often."""
        return ("--balance", self.recipe.balance, *self.tasks())

    def begin_round(self) -> None:
        """Encode a round beside whatever comes next."""
        for folder, how in self.folders().items():
            self.begin_store(folder, **how)

    def encode_round(self) -> None:
        """Samples of a round, whole."""
        self.begin_round()
        for folder, how in self.folders().items():
            self.store(folder, **how)

    def record_led(self) -> None:
        """What experts do where the last policy that acts has got to by itself."""
        recipe, leader = self.recipe, self.leader()
        assert leader is not None
        few: list[object] = ["--families", *recipe.families] if recipe.families else []
        self.steps.do(
            "lead", "eval", "--policy", leader, "--suite", "train", *few, "--trials", recipe.led, "--first-seed",
            self.first_seed, "--seconds", recipe.led_seconds, "--execute", recipe.execute, "--skip-future", "--wave",
            _LED_WAVE, "--films", 0, "--keep-actions", "--workers", self.workers, "--out", self.data / "leads",
        )  # fmt: skip
        self.steps.do(
            "record-led", "sim", "record", "--out", self.data / "led", "--led", self.data / "leads", "--embodiment",
            "robot", "--episodes-per-task", recipe.led_times, "--raw", recipe.side, "--workers", self.workers,
        )  # fmt: skip
        self.steps.do(
            "record-shown-led", "sim", "record", "--out", self.data / "led", "--embodiment", "human",
            "--episodes-per-task", recipe.led, "--raw", recipe.side, "--first-seed", self.first_seed, "--workers",
            self.workers, *few,
        )  # fmt: skip

    def leader(self) -> Path | None:
        """A copy of the last policy that has learned to act: the one that learns now would be replaced meanwhile."""
        kept = self.data / "leader"
        if kept.exists():
            return kept
        runs = [*reversed(ACTING[: ACTING.index(self.piece) + 1]), GIVEN]
        found = next((run for run in runs if (self.run_of(run) / "policy").exists()), None)
        if found is None:
            return None
        aside = kept.with_name(".leader.tmp")
        for patience in (True, False):
            shutil.rmtree(aside, ignore_errors=True)
            try:
                shutil.copytree(self.run_of(found) / "policy", aside)
                break
            except OSError:  # it was just being replaced
                if not patience:
                    raise
                time.sleep(2.0)
        aside.rename(kept)
        return kept

    def acting(self, led: bool = False) -> dict[str, Any]:
        """How executions are made into samples."""
        recipe = self.recipe
        return {
            "demos": recipe.led_demos if led else recipe.demos,
            "states": recipe.led_states if led else recipe.states,
            "decisive": recipe.decisive,
            "takes": recipe.demo_takes,
            "mirror": True,
        }

    def samples(self) -> list[Path]:
        """What there is to learn from already, of this piece and of those before it."""
        pieces = ACTING[: ACTING.index(self.piece) + 1]
        return [
            one / "data" / folder / "samples"
            for piece in pieces
            for one in sorted((self.out / "pieces" / piece / "data/rounds").glob("*"))
            for folder in ("tasks", "acted", "led")
            if f"samples-{folder}" in Steps(one, 0.0).commands
            and (one / "data" / folder / "samples").exists()
        ]

    def tasks(self) -> tuple[object, ...]:
        """Training tasks in many colours."""
        few = ("--families", *self.recipe.families) if self.recipe.families else ()
        return ("--variants", self.recipe.variants, *few)

    def record(
        self, name: str, folder: str, episodes: int, body: str, first_seed: int, *what: object
    ) -> None:
        """Episodes; a recording that was stopped goes on."""
        self.steps.do(
            name, "sim", "record", "--out", self.data / folder, "--episodes-per-task", episodes, "--embodiment", body,
            "--stray", self.recipe.stray, "--raw", self.recipe.side, "--first-seed", first_seed, "--workers",
            self.workers, *what,
        )  # fmt: skip

    def statistics(self) -> Path:
        """What actions are normalised by, the same for all pieces."""
        made = self.out / "statistics.json"
        if not made.exists():
            robot = self.data / ("scale" if self.piece == "match" else "held-out") / "robot"
            self.steps.do(
                "statistics", "data", "stats", robot, "--horizon", 16, "--any-rotation", "--overwrite"
            )
            aside = made.with_suffix(".tmp")
            shutil.copyfile(robot / "meta/hostbot/statistics.json", aside)
            os.replace(aside, made)
        return made

    def begin_store(
        self, folder: str, demos: int, states: int, decisive: float, takes: int = 1, mirror: bool = False
    ) -> None:
        """Couple and encode what was recorded, beside whatever comes next."""
        data = self.data / folder
        self.steps.do(
            f"pairs-{folder}", "data", "pairs", data / "robot", "--human", data / "human", "--out",
            data / "split.json", "--validation", 0, "--overwrite",
        )  # fmt: skip
        self.steps.begin(
            f"samples-{folder}", "train", "samples", "--robot", data / "robot", "--human", data / "human", "--split",
            data / "split.json", "--vae", self.seen_with(), "--statistics", self.statistics(), "--cameras", "bench",
            "--labels", "events", "--body", "human", "--demos", demos, "--demo-takes", takes, "--states", states,
            "--decisive", decisive, "--workers", self.workers, "--out", data / "samples", *(["--mirror"] * mirror),
        )  # fmt: skip

    def store(
        self, folder: str, demos: int, states: int, decisive: float, takes: int = 1, mirror: bool = False
    ) -> Path:
        """Samples of what was recorded, which takes room and is then removed."""
        self.begin_store(folder, demos, states, decisive, takes, mirror)
        self.steps.end(f"samples-{folder}")
        data = self.data / folder
        for body in ("robot", "human"):
            shutil.rmtree(data / body, ignore_errors=True)
        return data / "samples"

    def seen_with(self) -> Path:
        """The VAE."""
        if not self.has_vae():
            raise BadInput(f"{self.piece} needs a VAE, and {self.out} has none: run the piece see first")
        return self.run_of("see") / "vae"

    def has_vae(self) -> bool:
        """Whether there is a VAE that will not change any more."""
        return (self.run_of("see") / "vae").exists() and not goes_on(self.out, "see")

    def made(self, piece: Piece, folder: str) -> Path | None:
        """Samples of a piece, where they are whole and still there."""
        samples = self.out / "pieces" / piece / "data" / folder / "samples"
        return samples if f"samples-{folder}" in done(self.out, piece) and samples.exists() else None

    # Learning ------------------------------------------------------------------------------------------------

    def see(self) -> None:
        """The VAE, from a few episodes of every training task."""
        recipe = self.recipe
        self.prepare_beside("vae")
        self.steps.do(
            "vae", "train", "vae", "--data", self.data / "seen/robot", self.data / "seen/human", "--out",
            self.run_of("see"), "--fine", "--channels", recipe.channels, "--decoder-width", recipe.decoder_width,
            "--chroma", recipe.chroma, "--clips", recipe.clips, "--batch", recipe.vae_batch, "--minutes",
            self.steps.left(_KEEP), "--fit", "--validate-every", recipe.validate_every, "--workers", self.workers,
            "--seed", self.seed, *self.again("see"),
        )  # fmt: skip

    def words(self) -> list[object]:
        """What kind of learning it is."""
        recipe = self.recipe
        if self.piece == "match":
            return [
                "train", "match", "--text-dropout", 0.7, "--sight", "third_person", "--exchange", "--shift", 3,
                "--pair", 1.0,
            ]  # fmt: skip
        drills = self.made("match", "drills")
        return [
            "train", "policy", "--stage", 1 if self.piece == "act" else 2, "--point", recipe.point, "--demo-dropout",
            0.1, "--text-dropout", recipe.untold, "--misled", recipe.misled, "--decisions", recipe.decisive, "--shift",
            recipe.shift,
            *(["--drills", drills, "--drill-share", recipe.drill_share] if drills else []),
        ]  # fmt: skip

    def fuse(self, held_out: Path) -> None:
        """Fuse layers beside the rest, on a few held-out scenes: the run that learns finds them in the cache."""
        if not has_gpu() or "learn" in self.steps.commands:  # nothing is fused on a CPU
            return
        shutil.rmtree(self.data / "fuse", ignore_errors=True)
        self.steps.begin(
            "fuse", *self.words(), *self.settings([held_out]), "--steps", 2, "--out", self.data / "fuse"
        )

    def settings(self, stores: Iterable[Path]) -> list[object]:
        """What a run is told of its samples and itself."""
        recipe = self.recipe
        return [
            "--samples", *stores, "--vae", self.seen_with(), "--batch", recipe.batch,
            "--shared", recipe.shared, "--lr", recipe.lr, "--optimiser", "muon", "--one-view", 0, "--patch",
            recipe.patch, "--stem", recipe.stem, "--seed", self.seed, "--compile", "True", "--graphs", "--run-ahead",
        ]  # fmt: skip

    def learn(self) -> None:
        """The piece's run from where the one before it ended, with all the time that is left."""
        words, before = self.words(), self.before_it()
        if self.piece != "match" and "--drills" not in words:
            print(
                f"no drills of matching are here: {self.piece} is learned without any among its steps",
                flush=True,
            )
        self.prepare_beside("learn")
        more: list[object] = []
        if self.piece in ACTING:
            self.rounds.mkdir(parents=True, exist_ok=True)
            more = ["--more", self.rounds, "--at-least", self.recipe.at_least, "--export-often"]
        self.steps.do(
            "learn", *words, *(["--from", self.run_of(before)] if before else []),
            *self.settings([self.drills()] if self.piece == "match" else self._begun_with()), *more,
            "--validation", self.held_out(), "--validate-every", self.recipe.validate_every, "--out",
            self.run_of(self.piece), "--fit", "--save-every", 2000, "--minutes", self.steps.left(_KEEP),
            *self.again(self.piece),
        )  # fmt: skip

    def _begun_with(self) -> list[Path]:
        """Samples the run began with; a run that is gone on with is told the same ones, and finds the others again."""
        note = self.steps.folder / "begun.json"
        if not (note.exists() and self.again(self.piece)):
            write_json(note, {"samples": [str(path) for path in self.samples()]})
        return [Path(path) for path in read_json(note)["samples"]]

    def prepare_beside(self, during: str) -> None:
        """Made beside for as long as this piece learns: its own next rounds, or what the next piece begins with."""
        which = self.piece if self.piece in ACTING else AFTER.get(self.piece)
        wanted = self.piece in ACTING or self.ahead
        if wanted and which is not None and during not in self.steps.commands:
            self.steps.aside(
                f"prepare-{which}", "reproduce", "--out", self.out, "--pieces", which, "--prepare-only", "--seed",
                self.seed, "--workers", self.workers, "--minutes", self.steps.left(_KEEP), *(["--small"] * self.small),
                *(["--from", self.source] if self.source else []),
            )  # fmt: skip

    def attempt(self) -> None:
        """Closed-loop success in scenes of other seeds, from one human video a task."""
        recipe = self.recipe
        few: list[object] = ["--families", *recipe.families] if recipe.families else []
        tried = self.before_it() or "polish"
        policy = self.run_of(tried) / "policy"
        self.steps.do(
            f"eval-{tried}", "eval", "--policy", policy, "--suite", recipe.suite, *few,
            "--trials", recipe.trials, "--execute", recipe.execute, "--films", recipe.films, "--workers", self.workers,
            "--out", self.out / "eval" / tried,
        )  # fmt: skip

    def run_of(self, piece: str) -> Path:
        """Where a piece's run lies."""
        return self.out / piece

    def before_it(self) -> str | None:
        """The last piece before this one that left a policy, or what was given; matching may begin with nothing."""
        piece = _BEFORE.get(self.piece)
        while piece is not None and not (self.run_of(piece) / "policy").exists():
            piece = _BEFORE.get(piece)
        if piece is None and (self.run_of(GIVEN) / "policy").exists():
            return GIVEN
        if piece is None and self.piece != "match":
            raise BadInput(
                f"{self.piece} goes on from a policy, and {self.out} has none: run the pieces before it first"
            )
        return piece

    def again(self, piece: str) -> list[object]:
        """What to say to go on with a run that was stopped."""
        return ["--resume"] if any((self.run_of(piece) / "checkpoints").glob("step-*")) else []
