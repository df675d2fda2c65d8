"""Train the small alignment weights within minutes on one GPU: record, train, choose, calibrate, judge once.

Frames stay in memory and on the GPU: nothing is encoded or decoded on the way. People are seen by several cameras at
once, each in another room, and half of the tasks are variants in other colours. Training goes on from the weights that
ship, or from nothing with ``--scratch``. Every so often validation pairs, of which some tasks are never trained on, are
aligned; the best weights by their error are kept. Novel tasks are looked at after that, once. Hands are read by a
network beside these weights, which ``align_hands.py`` teaches afterwards.

    python benchmarks/align_train.py OUT --minutes 7.5 --workers 20

OUT gets align.json and align.safetensors (the best so far whenever there is a better one), train.json (figures,
settings, hardware) and, unless ``--work`` names another place, checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hostbot.align.posture import Annotations
from hostbot.types import EpisodeInfo, Event, Frames

if TYPE_CHECKING:
    import torch

    from hostbot.align.aligner import Aligner
    from hostbot.align.draw import Pairs
    from hostbot.align.encoders import FrameEncoder
    from hostbot.align.recipe import TrainConfig
    from hostbot.align.small import SmallFrameEncoder
    from hostbot.align.train import Trainer
    from hostbot.align.videos import Embedded
    from hostbot.bench.record import Body

BODIES: tuple[Body, ...] = ("robot", "human")
Job: TypeAlias = "tuple[str, Body, str, int, int, int]"
"""Part, body, task, variant (0: the bench's own), seed, cameras; of a drill, which of its things is meant."""
DRILL = "drill"
TOGETHER = 2
"""Episodes of one variant, of each body."""
SIZE = 96
SEEDS = {"novel": 770_000, "valid": 620_000, "train": 10_000}
TRIES = 8
"""Scenes that are tried for an episode, as ``hostbot sim record`` does."""
LONGEST = 256
"""Frames of an episode that is trained on."""
APART = 6
"""Of so many validation tasks one is not trained on, and two others are looked at beside it."""
_WARM = 20
"""Steps before the pace is measured, and between two measurements."""


@dataclass(frozen=True, kw_only=True)
class Take:
    """One recorded episode."""

    part: str
    body: str
    task: str
    instruction: str
    views: dict[str, Frames]
    annotations: Annotations
    events: tuple[Event, ...]

    @property
    def length(self) -> int:
        return len(next(iter(self.views.values())))


class Takes:
    """Recorded episodes as a source of episodes, in memory."""

    def __init__(self, name: str, takes: Sequence[Take]) -> None:
        self.name, self.fps, self.takes = name, 16.0, takes
        self.views = tuple(takes[0].views)
        self.widths: dict[str, int] = {}
        self.embodiment = None

    def __len__(self) -> int:
        return len(self.takes)

    def episode(self, index: int) -> EpisodeInfo:
        take = self.takes[index]
        return EpisodeInfo(
            index=index, length=take.length, instruction=take.instruction, tasks=(take.instruction,)
        )

    def rows(self, index: int, names: Sequence[str]) -> dict[str, np.ndarray]:
        return {}

    def frames(
        self, index: int, view: str, frame_indices: Sequence[int], size: tuple[int, int] | None = None
    ) -> Frames:
        found = self.takes[index].views[view][list(frame_indices)]
        assert size is None or found.shape[1:3] == size, (found.shape, size)
        return found

    def events(self, index: int) -> tuple[Event, ...]:
        return self.takes[index].events


def record_one(job: Job) -> list[Take] | str:
    """In a worker: one successful episode, a take for each camera, or why there is none."""
    part, body, name, variant, seed, cameras = job
    from hostbot.bench.annotated import annotated_human, annotated_robot
    from hostbot.bench.leads import STRIDE
    from hostbot.sim.catalogue import task
    from hostbot.sim.demonstrator import DemonstratorConfig
    from hostbot.sim.drills import drill
    from hostbot.sim.env import EnvConfig
    from hostbot.sim.roaming import NAME as ROAM
    from hostbot.sim.roaming import SECONDS, roaming
    from hostbot.sim.variants import varied

    person, robot = DemonstratorConfig(size=SIZE), EnvConfig(size=SIZE)
    if name == ROAM:
        person, robot = replace(person, seconds=SECONDS), replace(robot, seconds=SECONDS)
    for again in range(TRIES):
        used = seed + again * STRIDE
        told = (
            f"{name}~{used}.{variant}" if name in (DRILL, ROAM) else f"{name}~{variant}" if variant else name
        )
        try:
            if name == DRILL:
                one = drill(used, variant, begun=False)
            elif name == ROAM:
                one = roaming(used)
            else:
                one = varied(task(name), variant, used) if variant else task(name)
            if body == "human":
                made = annotated_human(one, used, person, cameras, anyhow=name == ROAM)
            else:
                found = annotated_robot(one, used, robot, anyhow=name == ROAM)
                made = [] if found is None else [found]
        except Exception as error:  # one bad scene must not end the recording; it is counted and told
            return f"{body} {name} {used}: {type(error).__name__}: {error}"
        if made:
            known = {"part": part, "body": body, "task": told}
            return [Take(instruction=one.instructions[0], **known, **vars(take)) for take in made]
    return f"{body} {name} {seed}: no success in {TRIES} tries"


def base(task: str) -> str:
    """The bench's own task of which this may be a variant; that of a drill is no task."""
    return task.partition("~")[0]


def jobs(
    per_task: int, num_tasks: int | None, first_seed: int, cameras: int = 3, variants: bool = True
) -> list[Job]:
    """What to record, in this order: novel and validation pairs, then training episodes, all tasks early.

    Training episodes come in twos of one kind: the bench's own task, one variant of it, its own again, another one.
    """
    from hostbot.sim.catalogue import split

    names = {part: list(split().names(part)) for part in ("train", "novel")}
    if num_tasks:
        names = {p: n[:: max(1, len(n) // num_tasks)][:num_tasks] for p, n in names.items()}
    found: list[Job] = [
        ("novel", b, n, 0, SEEDS["novel"] + k, 1) for k in range(2) for n in names["novel"] for b in BODIES
    ]
    found += [("valid", b, n, 0, SEEDS["valid"], 1) for n in sorted(names["train"])[::2] for b in BODIES]
    for k in range(per_task):
        variant = k // TOGETHER if variants and k // TOGETHER % 2 else 0
        found += [("train", b, n, variant, first_seed + k, cameras) for n in names["train"] for b in BODIES]
    return found


def record(listed: Sequence[Job], workers: int, until: float) -> tuple[list[Take], list[str]]:
    """As many episodes as there is time for."""
    takes: list[Take] = []
    bad: list[str] = []
    done = 0
    with get_context("spawn").Pool(workers) as pool:
        for found in _in_time(pool.imap_unordered(record_one, listed, chunksize=1), until):
            if isinstance(found, str):
                bad.append(found)
            else:
                takes += found
                done += 1
            if (done + len(bad)) % 200 == 0:
                print(
                    f"recorded {done} of {len(listed)}, {len(bad)} bad, {until - time.time():.0f} s left",
                    flush=True,
                )
        pool.terminate()
    return takes, bad


def _in_time(results: Any, until: float) -> Iterator[list[Take] | str]:
    from multiprocessing import TimeoutError as Late

    while True:
        try:
            yield results.next(timeout=max(0.1, until - time.time()))
        except (StopIteration, Late):
            return


def pairs_of(takes: Sequence[Take], draw: Any, device: torch.device) -> Pairs:
    """Training pairs over frames the device holds."""
    from hostbot.align.cache import FrameCache
    from hostbot.align.draw import Pairs

    caches, tasks = {}, {}
    for body in BODIES:
        ours = [t for t in takes if t.body == body and t.length <= LONGEST]
        views = tuple(ours[0].views)
        lengths = np.array([t.length for t in ours])
        frames = np.concatenate([np.stack([t.views[v] for v in views], 1) for t in ours])
        caches[body] = FrameCache(body, views, lengths, frames)
        caches[body].hold(device)
        for index, take in enumerate(ours):
            tasks.setdefault(take.task, {}).setdefault(body, []).append(index)
    return Pairs(caches, tasks, draw, seed=0)


def encoder_of(given: argparse.Namespace) -> FrameEncoder:
    """The shipped encoder, without its reader of hands, or a new one."""
    from hostbot.align.aligner import load_aligner
    from hostbot.align.small import SmallConfig, SmallFrameEncoder

    if given.scratch:
        return SmallFrameEncoder(SmallConfig() if given.width is None else SmallConfig(width=given.width))
    shipped = load_aligner(given.weights).encoder
    assert isinstance(shipped, SmallFrameEncoder)
    return shipped if given.calibrate_only else without_hands(shipped)


def without_hands(encoder: SmallFrameEncoder) -> SmallFrameEncoder:
    """The embedding alone."""
    from hostbot.align.small import SmallFrameEncoder

    made = SmallFrameEncoder(replace(encoder.config, hands=None))
    made.load_state_dict({k: v for k, v in encoder.state_dict().items() if not k.startswith("hands.")})
    return made


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The first pair of each task, embedded."""

    names: list[str]
    sources: list[Takes]
    places: list[dict[str, int]]
    videos: list[dict[str, Embedded]]
    """Of robots and of people, by task."""


def seen_by(aligner: Aligner, takes: Sequence[Take]) -> Seen:
    from hostbot.align.videos import embed_episode

    sources = [Takes(body, [t for t in takes if t.body == body]) for body in BODIES]
    places = [{t.task: k for k, t in reversed(list(enumerate(s.takes)))} for s in sources]
    names = [name for name in places[0] if name in places[1]]
    if not names:
        raise SystemExit("no validation pair was recorded; give the recording more time or workers")
    videos = [
        {n: embed_episode(aligner, s, at[n]) for n in names} for s, at in zip(sources, places, strict=True)
    ]
    return Seen(names=names, sources=sources, places=places, videos=videos)


def judged(aligner: Aligner, seen: Seen) -> dict[str, float]:
    """Error at events and how tasks are told apart by closeness."""
    from align_truth import truths

    from hostbot.align.confidence import auroc, features
    from hostbot.align.evaluate import event_error
    from hostbot.align.videos import align_whole

    errors, near, far = [], [], []
    (robot, human), (robots, humans), names = seen.sources, seen.videos, seen.names
    for k, name in enumerate(names):
        r, h, wrong = robots[name], humans[name], humans[names[(k + 1 + len(names) // 3) % len(names)]]
        found = align_whole(aligner, h, r).found
        there, back = truths(robot, seen.places[0][name], human, seen.places[1][name])
        errors.append([event_error(found.robot_to_demo, there), event_error(found.demo_to_robot, back)])
        near.append(features(h.points, r.points, aligner.align(h.points, r.points).found)[0])
        if wrong is not h:
            far.append(features(wrong.points, r.points, aligner.align(wrong.points, r.points).found)[0])
    ours, theirs = np.nanmean(errors, 0)
    found = {"pairs": len(names), "robot": ours, "human": theirs, "both": 0.5 * (ours + theirs)}
    if far:
        found["auroc"] = auroc(near, far)
    return {k: round(float(v), 4) for k, v in found.items()}


def through(where: str) -> None:
    """Smooth DTW of all tensors by the kernels of one device: what is done, and told, where others do not work."""
    from importlib import import_module
    from types import SimpleNamespace

    from hostbot.align import dtw

    kernels = import_module(f"hostbot.align._{where}")

    def moved(name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            back = given[0].device
            found = getattr(kernels, name)(*(x.to(where) if hasattr(x, "to") else x for x in given))
            return tuple(x.to(back) for x in found) if isinstance(found, tuple) else found.to(back)

        return call

    both = SimpleNamespace(scores=moved("scores"), unscores=moved("unscores"))
    dtw._backend = lambda _: both  # type: ignore[assignment,return-value]


def loss_and_gradient(where: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Of pairs of many lengths."""
    import torch

    from hostbot.align.losses import alignment_loss

    torch.manual_seed(0)
    raw = torch.randn(2, 6, 70, 32)
    lengths = torch.tensor([[70, 50, 3, 70, 61, 33], [44, 70, 70, 1, 20, 65]]).to(where)
    points = torch.nn.functional.normalize(raw, dim=-1).to(where).requires_grad_()
    total = alignment_loss(points[0], points[1], lengths[0], lengths[1]).total
    total.backward()
    assert points.grad is not None
    return total.detach().cpu(), points.grad.cpu()


def check_dtw(device: torch.device) -> str:
    """Which smooth DTW there is: both kinds of kernels if they agree, else the one that works, for everything."""
    import torch

    found, wrong = {}, {}
    for kind in dict.fromkeys(("cpu", device.type)):
        try:
            found[kind] = loss_and_gradient(torch.device(kind))
            if not all(x.isfinite().all() for x in found[kind]):
                raise ArithmeticError("not finite")
        except Exception as error:  # told in the result file
            wrong[kind] = f"{kind}: {type(error).__name__}: {str(error)[:300]}"
            found.pop(kind, None)
    if len(found) == 2:
        try:
            torch.testing.assert_close(found[device.type], found["cpu"], rtol=2e-2, atol=1e-4)
        except AssertionError as error:
            wrong[device.type] = f"{device.type} is not the cpu's: {str(error)[:300]}"
            del found[device.type]
    if not found:
        raise SystemExit(f"no smooth DTW works here: {wrong}")
    if wrong:
        through(next(iter(found)))
        loss_and_gradient(device)
    return " and ".join(found) + "".join(f"; {why}" for why in wrong.values())


@dataclass
class Looks:
    """Validations on the way, what they cost, and the weights with the lowest error so far."""

    judge: Callable[[], dict[str, dict[str, float]]]
    tell: Callable[[dict[str, Any]], None]
    keep: Callable[[], None]
    num: int = 0
    seconds: float = 0.0
    error: float = float("inf")
    step: int = -1
    weights: dict[str, torch.Tensor] | None = None

    def at(self, trainer: Trainer) -> None:
        """Look, and remember the weights if they are the best; training goes on where it was."""
        begin = time.time()
        found = self.judge()
        trainer.encoder.train()
        self.tell({"step": trainer.step, "valid": found})
        error = found["apart"]["both"] + found["trained"]["both"]
        if self.weights is None or error < self.error:
            self.error, self.step = error, trainer.step
            self.weights = {k: v.detach().clone() for k, v in trainer.encoder.state_dict().items()}
            self.keep()
        self.num, self.seconds = self.num + 1, self.seconds + time.time() - begin


def train(trainer: Trainer, until: float, every: float, looks: Looks) -> None:
    """Until the time is over; the schedule of the learning rate follows the pace that is measured on the way."""
    begun, due, before = 0.0, time.time() + every, looks.seconds
    for report in trainer.run():
        now = time.time()
        if report.step == _WARM:
            begun = now
        elif report.step > _WARM and report.step % _WARM == 0:
            pace = (now - begun - (looks.seconds - before)) / (report.step - _WARM)
            left = max(0.0, until - now)
            left -= left / every * looks.seconds / looks.num
            trainer.config = replace(trainer.config, steps=report.step + max(1, int(left / pace)))
            if report.step % (10 * _WARM) == 0 or report.step <= 5 * _WARM:
                looks.tell(_told(report, trainer.config.steps, pace))
        if now >= until:
            trainer.stop()
        elif now >= due:
            looks.at(trainer)
            due = time.time() + every
    looks.at(trainer)


def _told(report: Any, steps: int, pace: float) -> dict[str, Any]:
    names = ("tcc", "dtw", "two_looks", "negatives", "gradient", "learning_rate")
    parts = {name: float(f"{getattr(report, name):.4g}") for name in names}
    return {"step": report.step, "of": steps, "ms_a_step": round(1e3 * pace, 1)} | parts


def plain(value: Any) -> Any:
    """A figure that is not a number is none."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.5, help="of everything")
    parser.add_argument("--record-share", type=float, default=0.3, help="of the minutes, at most")
    parser.add_argument(
        "--after", type=float, default=75.0, help="seconds kept for calibration and novel tasks"
    )
    parser.add_argument("--episodes-per-task", type=int, default=12, help="to train on, of each body")
    parser.add_argument(
        "--first-seed", type=int, default=SEEDS["train"], help="of scenes that are learned from"
    )
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--tasks", type=int, help="only so many of each split, to try the script")
    parser.add_argument("--scratch", action="store_true", help="from nothing instead of the shipped weights")
    parser.add_argument("--width", type=int, help="of a new encoder")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--frames", type=int, default=72)
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--gamma-f", type=float, default=0.5)
    parser.add_argument("--two-looks", type=float, default=0.5)
    parser.add_argument("--negatives", type=float, default=0.3)
    parser.add_argument("--cameras", type=int, default=3, help="that see a person")
    parser.add_argument("--no-variants", action="store_true", help="the bench's own tasks only")
    parser.add_argument("--no-novel", action="store_true", help="do not look at novel tasks at all")
    parser.add_argument("--weights", type=Path, help="to go on from, instead of those that ship")
    parser.add_argument("--calibrate-only", action="store_true", help="no step of training")
    parser.add_argument("--look-every", type=float, default=50.0, help="seconds between validations")
    parser.add_argument("--device", default="")
    parser.add_argument("--work", type=Path, help="where checkpoints go; OUT/run by default")
    run(parser.parse_args())


def run(given: argparse.Namespace) -> None:
    if not given.no_novel:
        import align_novel  # noqa: F401  what is missing is told now, not after the training
    import measure
    import torch

    from hostbot.align.aligner import Aligner, AlignerConfig, save_aligner
    from hostbot.align.calibrate import calibrate, summaries_of
    from hostbot.align.distributed import World
    from hostbot.align.train import Trainer
    from hostbot.config import write_json

    begin = time.time()
    given.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtw = check_dtw(device)
    print(f"{device}, smooth DTW by {dtw}", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the workers
    listed = jobs(
        given.episodes_per_task, given.tasks, given.first_seed, given.cameras, not given.no_variants
    )
    listed = [job for job in listed if job[0] != "novel" or not given.no_novel]
    takes, bad = record(listed, given.workers, begin + 60 * given.minutes * given.record_share)
    recorded = time.time() - begin
    print(
        f"{len(takes)} episodes of {len(listed)} in {recorded:.0f} s; bad: {len(bad)} {bad[:3]}", flush=True
    )
    valid = [t for t in takes if t.part == "valid"]
    names = sorted({t.task for t in valid})
    apart, known = set(names[::APART]), set(names[1 :: APART // 2])
    recipe = recipe_of(given, device)
    learned = [t for t in takes if t.part == "train" and base(t.task) not in apart]
    torch.manual_seed(0)
    pairs = pairs_of(learned, recipe.draw, device)
    work = given.work or given.out / "run"
    trainer = Trainer(encoder_of(given), pairs, recipe, work, World(device=device))
    config = AlignerConfig(encoder=trainer.encoder.config, match=recipe.loss.match)  # type: ignore[arg-type]
    log: list[dict[str, Any]] = []

    def tell(what: dict[str, Any]) -> None:
        log.append({"second": round(time.time() - begin, 1)} | plain(what))
        print(json.dumps(log[-1]), flush=True)

    def judge() -> dict[str, dict[str, float]]:
        aligner = Aligner(trainer.encoder, config, device)
        parts = {"apart": apart, "trained": known}
        return {
            k: judged(aligner, seen_by(aligner, [t for t in valid if t.task in part]))
            for k, part in parts.items()
        }

    def keep() -> None:
        notes = notes_of(given, trainer.step, measure.hardware(device)["device"], time.time() - begin)
        save_aligner(trainer.encoder, config, given.out / "align.json", notes)

    looks = Looks(judge=judge, tell=tell, keep=keep)
    tell({"episodes": len(takes), "dtw": dtw, "device": str(device)})
    looks.at(trainer)
    if not given.calibrate_only:
        train(trainer, begin + 60 * given.minutes - given.after, given.look_every, looks)
    assert looks.weights is not None
    trainer.encoder.load_state_dict(looks.weights)
    result = {
        "settings": {k: str(v) for k, v in vars(given).items()}, "hardware": measure.hardware(device),
        "commit": measure.commit(), "episodes": len(takes), "bad": bad[:20], "recorded_s": round(recorded, 1),
        "dtw": dtw, "steps": trainer.step, "best_step": looks.step, "log": log,
    }  # fmt: skip
    write_json(given.out / "train.json", result)
    aligner = Aligner(trainer.encoder, config, device)
    notes = notes_of(given, looks.step, measure.hardware(device)["device"], time.time() - begin)
    held = pairs_of(valid, recipe.draw, torch.device("cpu"))
    summaries = summaries_of(aligner, pairs)
    calibrated = calibrate(aligner, held, num=min(160, 2 * len(held.names)), summaries=summaries)
    aligner = aligner if calibrated is None else calibrated.of(aligner)
    save_aligner(aligner.encoder, aligner.config, given.out / "align.json", notes, company=aligner.company)
    tell({"calibrated": aligner.identity})
    if not given.no_novel:
        result["novel"] = plain(on_novel(aligner, [t for t in takes if t.part == "novel"]))
        print(json.dumps({k: v for k, v in result["novel"].items() if k != "families"}), flush=True)
    result["seconds"] = round(time.time() - begin, 1)
    write_json(given.out / "train.json", result)


def recipe_of(given: argparse.Namespace, device: torch.device) -> TrainConfig:
    """The small recipe with what was asked for."""
    from hostbot.align.cost import MatchConfig
    from hostbot.align.losses import LossConfig
    from hostbot.align.recipe import small_draw, small_recipe

    match = MatchConfig(gamma_f=given.gamma_f)
    return small_recipe(
        steps=10**6, batch_size=given.pairs, learning_rate=given.learning_rate, save_every=2000,
        draw=small_draw(max_steps=given.frames, human_human=0.25), look_every=10**6, bf16=device.type == "cuda",
        negatives=given.negatives, two_looks=given.two_looks,
        loss=LossConfig(match=match, tcc_weight=0.3, dtw_weight=1.0),
    )  # fmt: skip


def on_novel(aligner: Aligner, takes: Sequence[Take]) -> dict[str, Any]:
    """The figures of the novel tasks, from frames as they were drawn, not encoded."""
    from align_novel import evaluated, figures

    robot, human = (Takes(body, [t for t in takes if t.body == body]) for body in BODIES)
    return figures(evaluated(aligner, robot, human), aligner.config.confident)


def notes_of(given: argparse.Namespace, steps: int, device: str, seconds: float) -> dict[str, str]:
    start = "nothing" if given.scratch else "earlier weights"
    return {
        "trained": f"by benchmarks/align_train.py from {start}: {steps} steps of {given.pairs} pairs, "
        f"{seconds:.0f} s with the recording, on {device}; training tasks of the bench and variants "
        "of them; no labels",
        "calibrated": "on human-robot pairs of training tasks, scenes from seed 620000 on, none of them trained on",
        "again": "python benchmarks/align_train.py OUT",
    }


if __name__ == "__main__":
    main()
