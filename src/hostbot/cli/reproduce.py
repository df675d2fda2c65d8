"""``hostbot reproduce``: the tiny weights from nothing, in pieces that each fit ten minutes on one GPU.

A piece needs nothing of those before it but what they learned (a VAE, a policy, one file of statistics); data it lacks
it records itself, from seeds of its own. So pieces can run on one machine or on a fresh one each, and a piece that was
stopped goes on where it stood. On one machine no time is lost: while the GPU learns a piece, the CPU records and
encodes what the next one needs; and acting finds the drills of matching there, of which it keeps making some steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from tyro.conf import arg

from hostbot.cli.policies import SHIPPED, policy_folder
from hostbot.cli.recipe import SMALL, Recipe
from hostbot.cli.steps import Steps, told_to_end
from hostbot.config import read_json, to_dict, write_json
from hostbot.types import BadInput

Piece = Literal["see", "match", "act", "refine", "polish", "try"]
PIECES: tuple[Piece, ...] = get_args(Piece)
ACTING: tuple[Piece, ...] = ("act", "refine", "polish")
_BEFORE: dict[Piece, Piece] = {"act": "match", "refine": "act", "polish": "refine", "try": "polish"}
_AFTER: dict[Piece, Piece] = {"see": "match", "match": "act", "act": "refine", "refine": "polish"}
"""Which piece is prepared while one learns."""
_HELD_OUT = 900_000
"""First seed of scenes that nothing is learned from."""
_DRILLS = ("--drills", "--sketch")
_GIVEN = "given"
_LED_WAVE = 128
"""Robots that are led at once."""
_KEEP = 0.3
"""Minutes of a piece for whatever comes after learning."""


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Record, see, match, act, refine, polish and try: the tiny policy from nothing but seeds."""

    out: Path
    """Folder for everything."""
    pieces: tuple[Piece, ...] = PIECES
    """Which pieces, in their order; those that are done are left alone."""
    minutes: Annotated[tuple[float, ...], arg(metavar="M [M ...]")] = ()
    """Of each piece, or of the chosen ones in their order; 9.5, or 2.5 with --small."""
    seed: int = 0
    """Other seeds give other data and other weights."""
    workers: int = 0
    """Processes that simulate and decode; as many as there are cores if 0."""
    small: bool = False
    """Every step in small, to see that it works here (eleven minutes on two cores): nothing is learned."""
    keep_data: bool = False
    """Keep what was recorded and encoded when all is done; for pieces that are run one by one on one machine."""
    source: Annotated[Path | None, arg(name="from", metavar="POLICY")] = None
    """Go on from a policy that was made this way, or `shipped`: its VAE, its statistics, its weights."""
    prepare_only: bool = False
    """Only make what the pieces learn from: recordings, samples where there is a VAE, and fused layers on a GPU."""

    def run(self) -> None:
        """One piece after the other."""
        recipe = SMALL if self.small else Recipe()
        workers = self.workers or os.cpu_count() or 1
        if self.seed < 0 or self.seed > 7:
            raise BadInput(
                f"--seed is 0 to 7, so that no scene is held out and learned from; got {self.seed}"
            )
        chosen = [piece for piece in PIECES if piece in self.pieces]
        if self.source is not None and "see" in chosen:
            print("see: left out, the policy that is gone on from has its VAE", flush=True)
            chosen.remove("see")
        if not chosen:
            raise BadInput(f"--pieces names none; they are {', '.join(PIECES)}")
        minutes = self.minutes or (2.5 if self.small else 9.5,)
        if len(minutes) not in (1, len(chosen)):
            raise BadInput(
                f"--minutes is one number, or one for each of {', '.join(chosen)}; got {len(minutes)}"
            )
        source = policy_folder(self.source) if self.source == SHIPPED else self.source
        _claim(self.out, recipe, self.seed, source)
        for piece, limit in zip(chosen, minutes * (len(chosen) // len(minutes)), strict=True):
            steps = Steps(self.out / "pieces" / piece, limit)
            maker = Maker(
                out=self.out, piece=piece, steps=steps, recipe=recipe, workers=workers, seed=self.seed,
                ahead=not self.prepare_only and _AFTER.get(piece) in chosen, small=self.small, source=source,
                prepare_only=self.prepare_only,
            )  # fmt: skip
            print(f"{piece}:", flush=True)
            with told_to_end():
                try:
                    maker.prepare() if self.prepare_only else maker.make()
                finally:
                    steps.drop()
        if not self.keep_data and not self.prepare_only:
            for piece in PIECES[: PIECES.index(chosen[-1]) + 1]:  # what later ones have recorded is theirs
                if not _goes_on(self.out, piece):
                    shutil.rmtree(self.out / "pieces" / piece / "data", ignore_errors=True)
        print(f"wrote {self.out}")


def _done(out: Path, piece: Piece) -> set[str]:
    """The steps of a piece that are done."""
    folder = out / "pieces" / piece
    return set(Steps(folder, 0.0).commands) if folder.exists() else set()


def _goes_on(out: Path, piece: Piece) -> bool:
    """Whether a piece was begun and has not ended."""
    return (out / "pieces" / piece).exists() and not {"vae", "learn"} & _done(out, piece)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _claim(out: Path, recipe: Recipe, seed: int, source: Path | None) -> None:
    """Note what is made here, or refuse to go on with something else: done pieces would pass for its own."""
    given = None if source is None else _manifest(source)
    path, now = out / "recipe.json", {"recipe": to_dict(recipe), "seed": seed, "from": given}
    if path.exists() and read_json(path) != json.loads(json.dumps(now)):
        raise BadInput(
            f"{out} was begun with another --seed or --from, with or without --small, or by another version: use "
            "another --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    if source is not None and not path.exists():
        shutil.copytree(source / "vae", out / "see/vae", dirs_exist_ok=True)
        shutil.copytree(source, out / _GIVEN / "policy", dirs_exist_ok=True)
        write_json(out / "statistics.json", read_json(source / "policy.json")["statistics"])
    write_json(path, now)


def _manifest(policy: Path) -> str:
    """By which a policy is known again."""
    if not (policy / "vae").is_dir() or not (policy / "policy.json").is_file():
        raise BadInput(
            f"{policy} is no policy with its VAE: give the folder that reproduce or `model pack` wrote"
        )
    return hashlib.sha256((policy / "policy.json").read_bytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Maker:
    """The steps of one piece."""

    out: Path
    piece: Piece
    steps: Steps
    recipe: Recipe
    workers: int
    seed: int
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
        return 10_000 + 100_000 * self.seed + 20_000 * PIECES.index(self.piece)

    @property
    def held_out_seed(self) -> int:
        """Scenes that the piece learns nothing from."""
        return _HELD_OUT + 20_000 * PIECES.index(self.piece)

    def make(self) -> None:
        """The whole piece."""
        if self.piece == "try":
            self.attempt()
            return
        if self.piece != "see":
            self.seen_with()
            self.before_it()
        stores = self.prepare()
        if self.piece == "see":
            self.see()
        else:
            self.learn(stores)

    # What is learned from ------------------------------------------------------------------------------------

    def prepare(self) -> dict[Path, float]:
        """Everything the piece learns from; samples of it and fused layers, too, once there is a VAE."""
        if self.piece == "see":
            self.record("record", "seen", self.recipe.seen, "both", self.first_seed, *self.tasks())
            return {}
        self.record_held_out()
        if not self.has_vae():
            self.record_shown()
            return {}
        self.fuse(self.held_out())
        self.record_shown(encode=True)
        stores = self.stores()
        self.steps.end("fuse")
        return stores

    def record_held_out(self) -> None:
        """What the piece is judged by, and in matching what actions are normalised by."""
        seed = self.held_out_seed
        if self.piece == "match":
            self.record("record-scale", "scale", 1, "robot", seed, *self.tasks())
            self.record("record-held-out", "held-out", self.recipe.held_out, "both", seed, *_DRILLS)
        elif self.piece in ACTING:
            self.record("record-held-out", "held-out", 1, "both", seed, *self.tasks())

    def record_shown(self, encode: bool = False) -> None:
        """What the piece learns from, as it is recorded; what is there may be encoded beside the rest."""
        recipe, seed = self.recipe, self.first_seed
        if self.piece == "match":
            self.record("record-human", "drills", recipe.shown, "human", seed, *_DRILLS)
            self.record("record-robot", "drills", recipe.drills, "robot", seed, *_DRILLS)
        elif self.piece in ACTING:
            place = ACTING.index(self.piece)
            shown = ("--balance", recipe.balance, *self.tasks())
            midway = ("--midway", recipe.midway)
            self.record("record-human", "tasks", recipe.human[place], "human", seed, *shown)
            self.record("record-robot", "tasks", recipe.robot[place], "robot", seed, *midway, *shown)
            if encode:
                self.begin_store("tasks", **self.acting())
                self.record_led()
            self.record("record-acted", "acted", recipe.acted[place], "both", seed, "--drills", *midway)

    def record_led(self) -> None:
        """What experts do where the last policy that acts has got to by itself; nothing where there is none.

        A piece that is prepared while one before it still learns waits for that one: its faults are worth most.
        """
        recipe = self.recipe
        earlier = ACTING[: ACTING.index(self.piece)]
        if self.prepare_only and any(_goes_on(self.out, piece) for piece in earlier):
            return
        leader = self.leader()
        if leader is None:
            return
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
        """The last policy before this piece that has learned to act, and the same one once anything was led by it."""
        noted = self.data / "leader.json"
        if noted.exists():
            return self.run_of(read_json(noted)["run"]) / "policy"
        before = [*reversed(ACTING[: ACTING.index(self.piece)]), _GIVEN]
        found = next((run for run in before if (self.run_of(run) / "policy").exists()), None)
        if found is None:
            return None
        self.data.mkdir(parents=True, exist_ok=True)
        write_json(noted, {"run": found})
        return self.run_of(found) / "policy"

    def held_out(self) -> Path:
        """Samples the piece is judged by."""
        if self.piece == "match":
            return self.store("held-out", demos=1, states=1, decisive=1.0)
        return self.store("held-out", demos=1, states=self.recipe.judged, decisive=0.5)

    def acting(self) -> dict[str, Any]:
        """How executions are made into samples."""
        recipe = self.recipe
        return {
            "demos": recipe.demos,
            "states": recipe.states,
            "decisive": recipe.decisive,
            "takes": recipe.demo_takes,
            "mirror": True,
        }

    def stores(self) -> dict[Path, float]:
        """Samples the piece learns from, and their shares; in acting those of earlier pieces, too, where they are."""
        recipe = self.recipe
        if self.piece == "match":
            return {self.store("drills", demos=1, states=1, decisive=1.0, mirror=True): 1.0}
        folders = ["tasks", "acted", *(["led"] if "record-led" in self.steps.commands else [])]
        for folder in folders:
            self.begin_store(folder, **self.acting())
        tasks, acted, *led = [self.store(folder, **self.acting()) for folder in folders]
        found: dict[Piece, list[Path]] = {self.piece: [tasks, acted]}
        for piece in ACTING[: ACTING.index(self.piece)]:
            older = {folder: self.made(piece, folder) for folder in ("tasks", "acted", "led")}
            if older["tasks"] and older["acted"]:
                found[piece] = [older["tasks"], older["acted"]]
                led += [older["led"]] if older["led"] else []
        shares: dict[Path, float] = {}
        places = {piece: ACTING.index(piece) for piece in found}
        robots, drills = (sum(counts[n] for n in places.values()) for counts in (recipe.robot, recipe.acted))
        for piece, (tasks, acted) in found.items():  # all executions alike, whichever piece has recorded them
            whole = 1 - recipe.drilled - (recipe.led_share if led else 0)
            shares[tasks] = whole * recipe.robot[places[piece]] / robots
            shares[acted] = recipe.drilled * recipe.acted[places[piece]] / drills
        return shares | {store: recipe.led_share / len(led) for store in led}

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
            self.steps.do("statistics", "data", "stats", robot, "--horizon", 16, "--overwrite")
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
        return (self.run_of("see") / "vae").exists() and not _goes_on(self.out, "see")

    def made(self, piece: Piece, folder: str) -> Path | None:
        """Samples of a piece, where they are whole and still there."""
        samples = self.out / "pieces" / piece / "data" / folder / "samples"
        return samples if f"samples-{folder}" in _done(self.out, piece) and samples.exists() else None

    # Learning ------------------------------------------------------------------------------------------------

    def see(self) -> None:
        """The VAE, from a few episodes of every training task."""
        recipe = self.recipe
        self.prepare_next("vae")
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
            0.1, "--text-dropout", 0.5, "--decisions", recipe.decisive, "--shift", recipe.shift,
            *(["--drills", drills, "--drill-share", recipe.drill_share] if drills else []),
        ]  # fmt: skip

    def fuse(self, held_out: Path) -> None:
        """Fuse layers beside the rest, on a few held-out scenes: the run that learns finds them in the cache."""
        if not _has_gpu() or "learn" in self.steps.commands:  # nothing is fused on a CPU
            return
        shutil.rmtree(self.data / "fuse", ignore_errors=True)
        self.steps.begin(
            "fuse", *self.words(), *self.settings({held_out: 1.0}), "--steps", 2, "--out", self.data / "fuse"
        )

    def settings(self, stores: Mapping[Path, float]) -> list[object]:
        """What a run is told of its samples and itself."""
        recipe = self.recipe
        shares = [round(share, 4) for share in stores.values()]
        return [
            "--samples", *stores, "--weights", *shares, "--vae", self.seen_with(), "--batch", recipe.batch,
            "--shared", recipe.shared, "--lr", recipe.lr, "--optimiser", "muon", "--one-view", 0, "--patch",
            recipe.patch, "--stem", recipe.stem, "--seed", self.seed, "--compile", "True", "--graphs", "--run-ahead",
        ]  # fmt: skip

    def learn(self, stores: Mapping[Path, float]) -> None:
        """The piece's run from where the one before it ended, with all the time that is left."""
        words, before = self.words(), self.before_it()
        if self.piece != "match" and "--drills" not in words:
            print(
                f"no drills of matching are here: {self.piece} is learned without any among its steps",
                flush=True,
            )
        self.prepare_next("learn")
        self.steps.do(
            "learn", *words, *(["--from", self.run_of(before)] if before else []), *self.settings(stores),
            "--validation", self.held_out(), "--validate-every", self.recipe.validate_every, "--out",
            self.run_of(self.piece), "--fit", "--save-every", 2000, "--minutes", self.steps.left(_KEEP),
            *self.again(self.piece),
        )  # fmt: skip

    def prepare_next(self, during: str) -> None:
        """What the next piece learns from, made beside for as long as this one learns."""
        after = _AFTER.get(self.piece)
        if self.ahead and after is not None and during not in self.steps.commands:
            self.steps.aside(
                f"prepare-{after}", "reproduce", "--out", self.out, "--pieces", after, "--prepare-only", "--seed",
                self.seed, "--workers", self.workers, *(["--small"] * self.small),
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
        if piece is None and (self.run_of(_GIVEN) / "policy").exists():
            return _GIVEN
        if piece is None and self.piece != "match":
            raise BadInput(
                f"{self.piece} goes on from a policy, and {self.out} has none: run the pieces before it first"
            )
        return piece

    def again(self, piece: str) -> list[object]:
        """What to say to go on with a run that was stopped."""
        return ["--resume"] if any((self.run_of(piece) / "checkpoints").glob("step-*")) else []


VERBS: tuple[type, ...] = (Reproduce,)
