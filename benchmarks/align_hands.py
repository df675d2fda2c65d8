"""Teach the reader of hands that stands beside the small alignment weights: record, teach, follow, choose, calibrate.

What the renderer knows of hands in training tasks (how high, where heading, how far open) is learned by a network of
its own; the embedding, which is learned without labels, stays what it was. One task in six of the validation pairs is
never learned from. Which share of a point postures make up, validation pairs decide; novel tasks are looked at after
that, once. Runs on a laptop:

    python benchmarks/align_hands.py OUT

OUT gets align.json, align.safetensors and hands.json (figures, settings, hardware). A run that was interrupted goes on:
recordings and steps that are done are kept under OUT/work, which can be removed at the end.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from align_train import (
    APART,
    BODIES,
    DRILL,
    SEEDS,
    Job,
    Seen,
    Take,
    base,
    judged,
    on_novel,
    pairs_of,
    plain,
    record_one,
    seen_by,
    without_hands,
)

from hostbot.align.posture import Annotations
from hostbot.config import read_json, write_json
from hostbot.sim.roaming import NAME as ROAM
from hostbot.types import Event

if TYPE_CHECKING:
    from hostbot.align.aligner import Aligner
    from hostbot.align.calibrate import Summaries
    from hostbot.align.hands import HandReader
    from hostbot.align.teach import Report, TeachConfig, Videos

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Of a point that postures may make up; which it is, validation pairs decide."""
REST, BEGIN = 0.05, 6.0
"""What counts as a rest, what a step before the beginning costs at most: from validation pairs (align_rests.py)."""
PACED = 60
"""Steps by whose second half the pace is found."""
TOGETHER = 2
"""Episodes of the bench's own task, then as many of a variant of it, and so on."""


class Kept:
    """Recorded takes whose frames lie on disk: there are more than memory holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.index = folder, folder / "takes.json"

    def takes(self) -> list[Take]:
        """As they were recorded."""
        known, pictures = np.load(self.folder / "known.npz", allow_pickle=False), self._pictures()
        found = []
        for k, entry in enumerate(read_json(self.index)):
            frames = pictures[entry["body"]][entry["first"] : entry["first"] + entry["length"]]
            told = Annotations(posture=known[f"posture{k}"], spots=known[f"spots{k}"])
            found.append(Take(
                part=entry["part"], body=entry["body"], task=entry["task"], instruction=entry["instruction"],
                views={view: frames[:, v] for v, view in enumerate(entry["views"])}, annotations=told,
                events=tuple(Event(**event) for event in entry["events"]),
            ))  # fmt: skip
        return found

    def videos(self, body: str, without: Container[str]) -> Videos:
        """All that one body's are learned from, but those of some tasks; pictures stay on disk until they are drawn."""
        from hostbot.align.encoders import on_hand
        from hostbot.align.teach import Videos

        known = np.load(self.folder / "known.npz", allow_pickle=False)
        chosen = [
            (k, entry)
            for k, entry in enumerate(read_json(self.index))
            if entry["body"] == body and entry["part"] == "train" and base(entry["task"]) not in without
        ]
        views = tuple(chosen[0][1]["views"])
        lengths, first = (np.array([entry[what] for _, entry in chosen]) for what in ("length", "first"))
        told = {w: np.concatenate([known[f"{w}{k}"] for k, _ in chosen]) for w in ("posture", "spots")}
        riding = tuple(on_hand(view) for view in views)
        return Videos(views, self._pictures()[body], lengths, Annotations(**told), riding, first)

    def _pictures(self) -> dict[str, np.ndarray]:
        """Of each body, all takes one after the other."""
        shapes = {e["body"]: (-1, len(e["views"]), *e["shape"]) for e in read_json(self.index)}
        return {
            body: np.memmap(self.folder / f"{body}.raw", np.uint8, "r").reshape(shape)
            for body, shape in shapes.items()
        }

    def keep(self, takes: Iterable[Take]) -> None:
        """Write them down; nothing counts before all are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        entries, known, counts = [], {}, dict.fromkeys(BODIES, 0)
        files = {body: (self.folder / f"{body}.raw").open("wb") for body in BODIES}
        for k, take in enumerate(takes):
            frames = np.stack(list(take.views.values()), 1)
            files[take.body].write(frames.tobytes())
            known |= {f"posture{k}": take.annotations.posture, f"spots{k}": take.annotations.spots}
            entries.append({
                "part": take.part, "body": take.body, "task": take.task, "instruction": take.instruction,
                "views": list(take.views), "shape": frames.shape[2:], "first": counts[take.body],
                "length": take.length, "events": [asdict(event) for event in take.events],
            })  # fmt: skip
            counts[take.body] += take.length
        for file in files.values():
            file.close()
        np.savez(self.folder / "known.npz", **known)
        write_json(self.index, entries)


def jobs(given: argparse.Namespace) -> list[Job]:
    """What to record: novel and validation pairs, then what is learned from."""
    from hostbot.sim.catalogue import split

    names = {part: list(split().names(part)) for part in ("train", "novel")}
    if given.tasks:
        names = {p: n[:: max(1, len(n) // given.tasks)][: given.tasks] for p, n in names.items()}
    found: list[Job] = [
        ("valid", b, n, 0, SEEDS["valid"], 1) for n in sorted(names["train"])[::2] for b in BODIES
    ]
    if not given.no_novel:
        found += [
            ("novel", b, n, 0, SEEDS["novel"] + k, 1)
            for k in range(2)
            for n in names["novel"]
            for b in BODIES
        ]
    for body, num, cameras in (("human", given.people, given.cameras), ("robot", given.robots, 1)):
        for k in range(num):
            variant = k // TOGETHER if k // TOGETHER % 2 else 0
            found += [("train", body, n, variant, given.first_seed + k, cameras) for n in names["train"]]
    for body, part, cameras in (("human", 1, given.cameras), ("robot", 3, 1)):
        found += [
            ("train", body, DRILL, k % 4, given.first_seed + k, cameras) for k in range(given.drills // part)
        ]
        found += [("train", body, ROAM, 0, given.first_seed + k, cameras) for k in range(given.roams // part)]
    return found


def recorded(listed: Sequence[Job], workers: int, bad: list[str]) -> Iterable[Take]:
    """All that succeed, as they come; the others are counted."""
    begin = time.time()
    with get_context("spawn").Pool(workers) as pool:
        for done, found in enumerate(pool.imap(record_one, listed, chunksize=4), 1):
            if isinstance(found, str):
                bad.append(found)
            else:
                yield from found
            if done % 200 == 0 or done == len(listed):
                left = (time.time() - begin) / done * (len(listed) - done)
                print(f"recorded {done} of {len(listed)}, {len(bad)} bad, {left:.0f} s left", flush=True)


def filmed(take: Take) -> Take:
    """As a file gives it back: that is how videos come, and confidence is to know them so."""
    from hostbot.video import VideoWriter, open_video

    views = {}
    with TemporaryDirectory() as folder:
        for view, frames in take.views.items():
            path = Path(folder) / f"{view}.mp4"
            with VideoWriter(path, frames.shape[1:3], 16.0) as writer:
                for frame in frames:
                    writer.write(frame)
            with open_video(path) as reader:
                views[view] = reader.frames(range(len(reader)))
    return replace(take, views=views)


def config_of(given: argparse.Namespace) -> TeachConfig:
    from hostbot.align.teach import TeachConfig

    return TeachConfig(
        steps=given.steps, follow_steps=given.follow_steps, seed=given.seed, learning_rate=given.learning_rate,
        moments={"human": given.moments, "robot": given.robot_moments}, weights={"human": 1.0, "robot": 0.5},
    )  # fmt: skip


def fitted(
    reader: HandReader, sources: dict[str, Videos], config: TeachConfig, minutes: float, work: Path
) -> TeachConfig:
    """As many steps as fit, by the pace of some that are thrown away; what was found once stays."""
    from hostbot.align.teach import Teacher

    kept = work / "steps.json"
    if not kept.is_file():
        with TemporaryDirectory() as folder:
            tried = Teacher(copy.deepcopy(reader), sources, replace(config, steps=PACED + 1), Path(folder))
            times = [time.time() for _ in tried.run()]
        write_json(kept, int(60 * minutes / (times[-1] - times[PACED // 2]) * (PACED - PACED // 2)))
    return replace(config, steps=int(read_json(kept)))


def taught(
    reader: HandReader, sources: dict[str, Videos], config: TeachConfig, work: Path, tell: Any
) -> None:
    """Single moments, then whole videos; one that was taught already is read."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from hostbot.align.teach import Teacher, follow
    from hostbot.config import to_dict

    done, settings = work / "reader.safetensors", json.dumps(to_dict(config))
    if done.is_file():
        with safe_open(done, framework="pt") as file:
            if file.metadata() != {"config": settings}:
                raise SystemExit(f"{done} was taught with other settings; give the same ones, or another OUT")
        reader.load_state_dict(load_file(done))
        reader.cpu().eval()
        return
    teacher = Teacher(reader, sources, config, work / "run")
    if begun := teacher.resume():
        print(f"going on from step {begun}", flush=True)
    begin, mean = time.time(), Mean()
    for report in teacher.run():
        mean.add(_numbers(report))
        if report.step % 100 == 0:
            left = (time.time() - begin) / (report.step - begun) * (config.steps - report.step)
            tell({"step": report.step, "of": config.steps, "left_s": round(left)} | mean.told())
    mean = Mean()
    for step, errors in follow(reader, sources, config):
        mean.add(errors)
        if step % 100 == 0:
            tell({"follow": step, "of": config.follow_steps} | mean.told())
    reader.cpu()
    aside = done.with_suffix(".tmp")
    save_file({k: v.contiguous() for k, v in reader.state_dict().items()}, aside, {"config": settings})
    os.replace(aside, done)


def _numbers(report: Report) -> dict[str, float]:
    named = {"posture": report.posture, "place": report.spots}
    return {f"{what}, {name}": v for what, values in named.items() for name, v in values.items()}


@dataclass
class Mean:
    """Running means of the last hundred steps or so."""

    values: dict[str, float] | None = None

    def add(self, new: dict[str, float]) -> None:
        was = self.values or new
        self.values = {k: 0.97 * was[k] + 0.03 * v for k, v in new.items()}

    def told(self) -> dict[str, float]:
        return {k: round(v, 4) for k, v in (self.values or {}).items()}


def with_share(points: np.ndarray, width: int, was: float, share: float) -> np.ndarray:
    """Embeddings in which postures make up another share."""
    looks, postures = points[:, :width] / (1 - was) ** 0.5, points[:, width:] / was**0.5
    return np.concatenate([(1 - share) ** 0.5 * looks, share**0.5 * postures], 1).astype(np.float32)


def best_share(aligner: Aligner, seen: Seen) -> tuple[float, dict[str, float]]:
    """Which share of postures aligns validation pairs best, and how well each does."""
    from hostbot.align.small import SmallConfig

    config = aligner.config.encoder
    assert isinstance(config, SmallConfig)
    assert config.hands is not None
    width, was, found = config.embedding, config.hands.share, {}
    for share in SHARES:
        moved = [
            {n: replace(v, points=with_share(v.points, width, was, share)) for n, v in of.items()}
            for of in seen.videos
        ]
        found[share] = judged(aligner, replace(seen, videos=moved))["both"]
    return min(SHARES, key=lambda share: found[share]), {str(k): v for k, v in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--weights", type=Path, help="embedding to stand beside, instead of the one that ships"
    )
    parser.add_argument("--people", type=int, default=8, help="human episodes of a task")
    parser.add_argument("--cameras", type=int, default=2, help="that see a person, each in another room")
    parser.add_argument("--robots", type=int, default=3, help="robot episodes of a task")
    parser.add_argument(
        "--drills",
        type=int,
        default=2000,
        help="of people: hands that do what no task asks for; a third of robots",
    )
    parser.add_argument(
        "--roams",
        type=int,
        default=2400,
        help="of people: hands that do nothing in particular; a third of robots",
    )
    parser.add_argument(
        "--first-seed", type=int, default=SEEDS["train"], help="of scenes that are learned from"
    )
    parser.add_argument("--tasks", type=int, help="only so many of each split, to try the script")
    parser.add_argument("--steps", type=int, default=12500)
    parser.add_argument("--follow-steps", type=int, default=4000)
    parser.add_argument("--moments", type=int, default=112, help="of people, a step")
    parser.add_argument("--robot-moments", type=int, default=22, help="of robots, a step")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--device", default="cpu", help="that is taught on; it holds all frames")
    parser.add_argument(
        "--minutes", type=float, help="of teaching single moments: as many steps as they are good for"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="from the reader that stands beside the embedding already"
    )
    parser.add_argument(
        "--teach-only", action="store_true", help="stop when OUT/work/reader.safetensors is there"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="that record")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="that compute")
    parser.add_argument("--no-novel", action="store_true", help="do not look at novel tasks at all")
    run(parser.parse_args())


def run(given: argparse.Namespace) -> None:
    import measure
    import torch

    from hostbot.align.aligner import Aligner, load_aligner, save_aligner
    from hostbot.align.calibrate import calibrate
    from hostbot.align.hands import HandReader, HandsConfig
    from hostbot.align.recipe import small_draw
    from hostbot.align.small import SmallFrameEncoder

    begin = time.time()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the workers
    torch.set_num_threads(given.threads)
    told = given.out / "work" / "log.jsonl"  # of this run and of those it goes on from

    def tell(what: dict[str, Any]) -> None:
        line = json.dumps({"second": round(time.time() - begin, 1)} | plain(what))
        print(line, flush=True)
        told.parent.mkdir(parents=True, exist_ok=True)
        with told.open("a") as file:
            file.write(line + "\n")

    kept, bad = Kept(given.out / "work"), []  # type: ignore[var-annotated]
    if not kept.index.exists():
        kept.keep(recorded(jobs(given), given.workers, bad))
    takes = kept.takes()
    tell({"takes": len(takes), "bad": len(bad), "first bad": bad[:3]})
    files = find_spec("av") is not None
    valid = [filmed(take) if files else take for take in takes if take.part == "valid"]
    tell({"valid": "from files" if files else "as drawn, since there is no av to write files with"})
    apart = set(sorted({take.task for take in valid})[::APART])
    learned = [take for take in takes if take.part == "train" and base(take.task) not in apart]
    was = load_aligner(given.weights)
    assert isinstance(was.encoder, SmallFrameEncoder)
    plainly = without_hands(was.encoder)
    torch.manual_seed(given.seed)
    reader, config = HandReader(HandsConfig(), plainly.size), config_of(given)
    if given.go_on:
        if was.encoder.hands is None:
            raise SystemExit("these weights have no reader of hands to go on from")
        reader.load_state_dict(was.encoder.hands.state_dict())
    sources = {body: kept.videos(body, apart) for body in BODIES}
    if given.device != "cpu":
        sources = {body: videos.held(torch.device(given.device)) for body, videos in sources.items()}
        tell({"frames": {body: len(videos) for body, videos in sources.items()}})
    if given.minutes:
        config = fitted(reader, sources, config, given.minutes, given.out / "work")
    taught(reader, sources, config, given.out / "work", tell)
    if given.teach_only:
        return
    del sources

    def beside(share: float) -> Aligner:
        hands = replace(reader.config, share=share)
        encoder = SmallFrameEncoder(replace(plainly.config, hands=hands))
        encoder.load_state_dict(
            plainly.state_dict() | {f"hands.{k}": v for k, v in reader.state_dict().items()}
        )
        config = replace(was.config, encoder=encoder.config, calibration=None, rest=REST, begin=BEGIN)
        return Aligner(encoder, config)

    aligner = beside(SHARES[0])
    seen = seen_by(aligner, valid)
    share, shares = best_share(aligner, seen)
    tell({"share": share, "shares": shares})
    aligner = beside(share)
    chosen = [take for take in valid if take.task in apart]
    tell(
        {
            "valid": judged(aligner, seen_by(aligner, valid)),
            "apart": judged(aligner, seen_by(aligner, chosen)),
        }
    )
    held = pairs_of(valid, small_draw(), aligner.device)
    calibrated = calibrate(
        aligner,
        held,
        num=min(160, 2 * len(held.names)),
        summaries=summed(aligner, learned, filmed if files else lambda take: take),
    )
    aligner = aligner if calibrated is None else calibrated.of(aligner)
    notes = notes_of(given, config.steps, len(learned), measure.hardware(aligner.device)["device"])
    save_aligner(aligner.encoder, aligner.config, given.out / "align.json", notes, company=aligner.company)
    tell({"calibrated": load_aligner(given.out).identity})
    result: dict[str, Any] = {
        "settings": {k: str(v) for k, v in vars(given).items()}, "hardware": measure.hardware(aligner.device),
        "commit": measure.commit(), "videos learned from": len(learned),
        "log": [json.loads(line) for line in told.read_text().splitlines()],
    }  # fmt: skip
    if not given.no_novel:
        result["novel"] = plain(on_novel(load_aligner(given.out), [t for t in takes if t.part == "novel"]))
        print(json.dumps({k: v for k, v in result["novel"].items() if k != "families"}), flush=True)
    write_json(given.out / "hands.json", result)


def summed(
    aligner: Aligner, takes: Sequence[Take], as_seen: Callable[[Take], Take], per_task: int = 2
) -> Summaries:
    """Of pairs of every task and every drill that both bodies did, but variants: they would tell of their own task."""
    from hostbot.align.calibrate import Summaries
    from hostbot.align.likeness import summary

    by_task: dict[str, dict[str, list[Take]]] = {}
    for take in takes:
        if take.task == base(take.task) or base(take.task) == DRILL:
            by_task.setdefault(take.task, {body: [] for body in BODIES})[take.body].append(take)
    tasks, found = [], {body: [] for body in BODIES}  # type: ignore[var-annotated]
    for task, of in by_task.items():
        num = min(per_task, *map(len, of.values()))
        tasks += [task] * num
        for body in BODIES:
            found[body] += [summary(aligner.embed(take.views)) for take in map(as_seen, of[body][:num])]
    return Summaries(tasks=tuple(tasks), demos=np.stack(found["human"]), robots=np.stack(found["robot"]))


def notes_of(given: argparse.Namespace, steps: int, videos: int, device: str) -> dict[str, str]:
    was = read_json(given.weights / "align.json" if given.weights else _shipped())["notes"]
    before = f"{was['hands']}; then " if given.go_on else ""
    return {
        "trained": was["trained"],
        "hands": f"{before}by benchmarks/align_hands.py: {steps} and {given.follow_steps} steps over {videos} videos "
        "of training tasks, drills and hands that roam, from what the renderer knows of hands (docs/paper.md), on "
        f"{device}",
        "calibrated": "on human-robot pairs of training tasks, scenes from seed 620000 on, none of them trained on",
        "again": "python benchmarks/align_hands.py OUT",
    }


def _shipped() -> Path:
    from hostbot.align.aligner import SHIPPED

    return SHIPPED


if __name__ == "__main__":
    main()
