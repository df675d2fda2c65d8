"""``hostbot reproduce``: the tiny weights from nothing, in pieces that each fit ten minutes on one GPU.

A piece needs nothing of those before it but what they learned (a VAE, a policy, one file of statistics); data it lacks
it records itself, from seeds of its own. So pieces can run on one machine or on a fresh one each, and a piece that was
stopped goes on where it stood. No time is lost: while the GPU learns, the CPU records and encodes what is learned from
next; and on one machine acting finds the drills of matching, of which it keeps making some steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from hostbot.cli.maker import ACTING, AFTER, GIVEN, PIECES, Maker, Piece, goes_on
from hostbot.cli.policies import SHIPPED, policy_folder
from hostbot.cli.recipe import SMALL, Recipe
from hostbot.cli.steps import Steps, told_to_end
from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.types import BadInput


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
    """Go on from a policy that was made this way, or `shipped`: its VAE, its weights, its statistics with rotations
    bounded by what any rotation has."""
    prepare_only: bool = False
    """Only make what the pieces learn from: recordings, and samples where there is a VAE; for those that act round
    after round in the first part of their minutes."""

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
                ahead=not self.prepare_only and AFTER.get(piece) in chosen, small=self.small, source=source,
                prepare_only=self.prepare_only,
            )  # fmt: skip
            print(f"{piece}:", flush=True)
            with told_to_end():
                try:
                    self._prepare(maker) if self.prepare_only else maker.make()
                finally:
                    steps.drop()
        if not self.keep_data and not self.prepare_only:
            for piece in PIECES[: PIECES.index(chosen[-1]) + 1]:  # what later ones have recorded is theirs
                if not goes_on(self.out, piece):
                    shutil.rmtree(self.out / "pieces" / piece / "data", ignore_errors=True)
        print(f"wrote {self.out}")

    def _prepare(self, maker: Maker) -> None:
        """What a piece begins with, and for one that acts further rounds of it."""
        maker.prepare()
        if maker.piece in ACTING and maker.has_vae():
            maker.go_on_recording()


def _claim(out: Path, recipe: Recipe, seed: int, source: Path | None) -> None:
    """Note what is made here, or refuse to go on with something else: done pieces would pass for its own."""
    from hostbot.data.stats import Statistics, any_rotation

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
        shutil.copytree(source, out / GIVEN / "policy", dirs_exist_ok=True)
        known = from_dict(Statistics, read_json(source / "policy.json")["statistics"], str(source))
        write_json(out / "statistics.json", to_dict(any_rotation(known)))
    write_json(path, now)


def _manifest(policy: Path) -> str:
    """By which a policy is known again."""
    if not (policy / "vae").is_dir() or not (policy / "policy.json").is_file():
        raise BadInput(
            f"{policy} is no policy with its VAE: give the folder that reproduce or `model pack` wrote"
        )
    return hashlib.sha256((policy / "policy.json").read_bytes()).hexdigest()


VERBS: tuple[type, ...] = (Reproduce,)
