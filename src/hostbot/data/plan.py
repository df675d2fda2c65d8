"""Which samples there will be: takes of demonstrations, and robot states coupled to them; nothing is decoded yet.

Legend: R rows (samples), A takes of demonstrations, K target frames, H action steps, D action width, V views.
Rows are sorted by (views of their demonstration, take, demo frame), so that states that share a window of a
demonstration lie together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from hostbot import couple
from hostbot.data.cameras import project
from hostbot.data.mirror import mirrored, other_side
from hostbot.data.moments import decisions, find_moments, limb_paths, next_moment
from hostbot.data.normalize import Normalizer
from hostbot.data.pairs import Body, Pair
from hostbot.data.processes import Pool
from hostbot.data.sampling import SampleConfig, demo_length, view_columns
from hostbot.data.stats import ACTION, RELATIVE, STATE, Statistics
from hostbot.data.takes import Take, crop_point, draw_version, make_take
from hostbot.data.wordings import Wordings
from hostbot.geometry import between, to_relative
from hostbot.types import AGAIN, ASTRAY, BACK, BadInput, Camera, Correspondence, DataError, EpisodeSource

Labels = Callable[[Pair], Correspondence | None]
"""The correspondence of a pair, or None where the pair is not to be used."""


@dataclass(frozen=True, kw_only=True)
class Takes:
    """Every demonstration to be encoded."""

    body: Int32[np.ndarray, " A"]
    episode: Int32[np.ndarray, " A"]
    version: Int32[np.ndarray, " A"]
    length: Int32[np.ndarray, " A"]
    """Frames at the control rate."""
    latents: Int32[np.ndarray, " A"]
    first: Int64[np.ndarray, " A"]
    """Where its latents begin in the array of all."""
    present: Bool[np.ndarray, "A V"]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Every sample, but for its pictures."""

    take: Int32[np.ndarray, " R"]
    q: Int32[np.ndarray, " R"]
    episode: Int32[np.ndarray, " R"]
    version: Int32[np.ndarray, " R"]
    frames: Int32[np.ndarray, "R K+1"]
    """The robot's frames, the present and its targets, as numbered in the recording."""
    state: Float32[np.ndarray, "R D"]
    action: Float32[np.ndarray, "R H D"]
    text: Int32[np.ndarray, " R"]
    decision: Bool[np.ndarray, " R"]
    point: Float32[np.ndarray, "R V 2"]
    """Where the next moment's place appears in each of the robot's views (across, down)."""
    seen: Bool[np.ndarray, "R V"]

    def __len__(self) -> int:
        return len(self.take)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All samples of a store."""

    takes: Takes
    rows: Rows
    texts: tuple[str, ...]
    num_pairs: int
    num_refused: int
    """Pairs without a usable correspondence, or without a state to be learned from."""


BODIES: tuple[Body, ...] = ("robot", "human")
_WORDING = 3
"""Sets what is drawn for this apart from what is drawn for other things."""
CHUNK = 64
"""Pairs that are planned at once."""
_TakeKey = tuple[Body, int, int]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Samples of some pairs; takes and texts are numbered as they come up among these."""

    rows: Rows | None
    """None where no pair could be used."""
    takes: Mapping[_TakeKey, int]
    """(body, episode, version) -> frames."""
    texts: tuple[str, ...]
    num_pairs: int
    num_refused: int


class Planner:
    """Goes through pairs and notes samples; one object a store."""

    def __init__(
        self,
        sources: Mapping[Body, EpisodeSource],
        statistics: Statistics,
        config: SampleConfig,
        cameras: Sequence[Camera] = (),
        wordings: Wordings | None = None,
    ) -> None:
        self.sources, self.config, self.robot = sources, config, sources["robot"]
        self._given = (sources, statistics, config, cameras, wordings)
        self._wordings = wordings or {}
        wanted = RELATIVE if config.relative_actions else ACTION
        for name in (STATE, wanted):
            if name not in statistics.features:
                raise DataError(
                    f"the statistics have no {name!r}; write them with `hostbot data stats --overwrite`"
                )
        self._state = Normalizer.from_stats(statistics.features[STATE], config.normalize)
        self._action = Normalizer.from_stats(statistics.features[wanted], config.normalize)
        self._cameras = {camera.view: camera for camera in cameras}
        views = config.embodiment.views
        if config.take.mirror and (alone := [view for view in views if other_side(view) not in views]):
            raise BadInput(
                f"{config.embodiment.name!r} has no mirror image: {alone[0]!r} is there on one side only"
            )
        self._streams = lru_cache(maxsize=128)(self._read)
        self._points = lru_cache(maxsize=64)(self._pointing)
        self._takes: dict[_TakeKey, Take] = {}

    def __reduce__(self) -> tuple[type[Planner], tuple[object, ...]]:
        """Another process gets what this one was made of and reads for itself."""
        return Planner, self._given

    def plan(
        self,
        pairs: Sequence[Pair],
        labels: Labels,
        tick: Callable[[int], None] = lambda pairs: None,
        workers: int = 0,
    ) -> Plan:
        """Rows of all pairs, sorted; the same by any number of processes. ``tick`` is told how many pairs are done."""
        parts = []
        with closing(self._parts(pairs, labels, workers)) as coming:
            for part in coming:
                parts.append(part)
                tick(part.num_pairs)
        return self._merged(parts)

    def _parts(self, pairs: Sequence[Pair], labels: Labels, workers: int) -> Generator[Part, None, None]:
        firsts = range(0, len(pairs), CHUNK)
        chunks = [pairs[first : first + CHUNK] for first in firsts]
        if workers == 0 or len(chunks) < 2:
            yield from (self.part(*chunk, labels) for chunk in zip(firsts, chunks, strict=True))
            return
        with Pool(min(workers, len(chunks)), _start, self, labels) as pool:
            yield from pool.map(_part, firsts, chunks)

    def part(self, first: int, pairs: Sequence[Pair], labels: Labels) -> Part:
        """Samples of the pairs from number ``first`` on."""
        takes: dict[_TakeKey, int] = {}
        texts: dict[str, int] = {}
        rows = []
        for number, pair in enumerate(pairs, first):
            maps = labels(pair)
            made = None if maps is None else self._pair_rows(number, pair, maps, takes, texts)
            if made is not None:
                rows.append(made)
        length = demo_length(self.config.couple)
        return Part(
            rows=_joined(rows) if rows else None,
            takes={(b, e, v): len(self._take(b, e, v, length)) for b, e, v in takes},
            texts=tuple(texts),
            num_pairs=len(pairs),
            num_refused=len(pairs) - len(rows),
        )

    def _merged(self, parts: Sequence[Part]) -> Plan:
        num_pairs = sum(part.num_pairs for part in parts)
        lengths = {key: length for part in parts for key, length in part.takes.items()}
        texts = tuple(dict.fromkeys(text for part in parts for text in part.texts))
        take_numbers = {key: number for number, key in enumerate(lengths)}
        text_numbers = {text: number for number, text in enumerate(texts)}
        found = [
            replace(
                part.rows,
                take=np.array([take_numbers[key] for key in part.takes], np.int32)[part.rows.take],
                text=np.array([text_numbers[text] for text in part.texts], np.int32)[part.rows.text],
            )
            for part in parts
            if part.rows is not None
        ]
        if not found:
            raise DataError(f"none of the {num_pairs} pairs can be used: there is nothing to train on")
        rows, takes = _joined(found), self._all_takes(lengths)
        group = np.packbits(takes.present, axis=1)[:, 0][rows.take]
        order = np.lexsort((rows.q, rows.take, group))
        return Plan(
            takes=takes,
            rows=Rows(**{f.name: getattr(rows, f.name)[order] for f in fields(Rows)}),
            texts=texts,
            num_pairs=num_pairs,
            num_refused=sum(part.num_refused for part in parts),
        )

    def _read(self, episode: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.robot.rows(episode, [STATE, ACTION])
        return rows[STATE], rows[ACTION]

    def _played(self, take: Take) -> tuple[np.ndarray, np.ndarray]:
        """The robot's state and action at every frame of the recording, in the mirror if the take is."""
        both = self._streams(take.episode)
        if take.mirrored:
            both = mirrored(both[0], self.config.embodiment), mirrored(both[1], self.config.embodiment)
        state, action = (values.astype(np.float32, copy=False) for values in both)
        return state, action

    def _take(self, body: Body, episode: int, version: int, length: int | None = None) -> Take:
        key = (body, episode, version if length is None else -1 - version)
        if key not in self._takes:
            known = body == "robot" and self.config.take.clean is not None
            self._takes[key] = make_take(
                self.sources[body],
                body,
                episode,
                version,
                self.config.take,
                embodiment=self.config.embodiment,
                length=length,
                streams=self._streams(episode) if known else None,
            )
        return self._takes[key]

    def _pair_rows(
        self,
        number: int,
        pair: Pair,
        maps: Correspondence,
        takes: dict[_TakeKey, int],
        texts: dict[str, int],
    ) -> Rows | None:
        """Samples of a pair; None where there is no state to be learned from."""
        config = self.config
        rng = np.random.default_rng([config.seed, number])
        told = self.robot.episode(pair.robot).instruction
        ways = " ".join(self._wordings.get(told, (told,)))  # a side that any of them names shows in no mirror
        robot = self._take("robot", pair.robot, draw_version(config.robot_takes, config.take, ways, rng))
        version = draw_version(config.demo_takes, config.take, ways, rng)
        demo = self._take(pair.demo_body, pair.demo, version, demo_length(config.couple))
        self._check_lengths(pair, maps)
        played = couple.retimed(maps, robot.frames, demo.frames)
        pointing = self._points(pair.robot, robot.version)
        states = _drawn(pointing[2], self._meant(robot, played), config, rng)
        if not len(states):
            return None
        targets = couple.target_frames(played, states, config.couple)
        now = robot.frames[states]
        state, action = self._played(robot)
        said = self._said(told, pair, version)
        text = texts.setdefault(said, len(texts))
        point, seen, decision = (a[states] for a in pointing)
        frames = robot.frames[np.concatenate([states[:, None], targets.frames], axis=1)]
        same = np.ones(len(states), np.int32)
        key = (pair.demo_body, pair.demo, version)
        return Rows(
            take=same * takes.setdefault(key, len(takes)),
            q=couple.demo_positions(played, config.couple)[states].astype(np.int32),
            episode=same * pair.robot,
            version=same * robot.version,
            frames=frames.astype(np.int32),
            state=self._state.normalize(state[now]),
            action=self._chunks(
                between(action[robot.frames], targets.actions, config.embodiment), state[now]
            ),
            text=same * text,
            decision=decision,
            point=point,
            seen=seen,
        )

    def _said(self, told: str, pair: Pair, version: int) -> str:
        """The words of whoever made the video: one of the ways to say the task, the same with every robot."""
        ways = self._wordings.get(told, ())
        if not ways:
            return told
        drawn = [self.config.seed, _WORDING, BODIES.index(pair.demo_body), pair.demo, version]
        return ways[int(np.random.default_rng(drawn).integers(len(ways)))]

    def _meant(self, robot: Take, played: Correspondence) -> Bool[np.ndarray, " M"]:
        """Frames of a take whose chunk holds nothing that the robot was led to rather than meant."""
        events, length = self.robot.events(robot.episode), self.robot.episode(robot.episode).length
        depth, again = np.zeros(length + 1), 0
        for event in events:
            if event.name in (ASTRAY, BACK):
                depth[event.frame] += 1 if event.name == ASTRAY else -1
            elif event.name == AGAIN:  # what had to be done again is no example
                again = max(again, event.frame)
        led = (np.cumsum(depth)[:-1] > 0) | (np.arange(length) < again)
        if not led.any():
            return np.ones(len(robot), bool)
        astray = np.flatnonzero(led)
        states = np.arange(len(robot))
        targets = couple.target_frames(played, states, self.config.couple)
        # Rounded targets may begin before the state.
        begins = robot.frames[np.minimum(states, np.floor(targets.actions.min(axis=1)).astype(np.int64))]
        ends = robot.frames[
            np.maximum(np.ceil(targets.actions[:, -1]).astype(np.int64), targets.frames[:, -1])
        ]
        return np.searchsorted(astray, begins) == np.searchsorted(astray, ends, side="right")

    def _check_lengths(self, pair: Pair, maps: Correspondence) -> None:
        found = len(maps.robot_to_demo), len(maps.demo_to_robot)
        wanted = (
            self.robot.episode(pair.robot).length,
            self.sources[pair.demo_body].episode(pair.demo).length,
        )
        if found != wanted:
            raise DataError(
                f"the correspondence of robot episode {pair.robot} and {pair.demo_body} episode {pair.demo} is of "
                f"{found} frames, but they have {wanted}: align these datasets again"
            )

    def _chunks(self, actions: np.ndarray, state: np.ndarray) -> Float32[np.ndarray, "B H D"]:
        if self.config.relative_actions:
            actions = to_relative(actions, state, self.config.embodiment)
        return self._action.normalize(actions).astype(np.float32)

    def _pointing(self, episode: int, version: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every frame of a take: the next moment's place in each view, where it is seen, decision points."""
        take = self._take("robot", episode, version)
        now = take.frames
        views = self.config.embodiment.views
        state, action = self._played(take)
        point = np.zeros((len(now), len(views), 2), np.float32)
        seen = np.zeros((len(now), len(views)), bool)
        paths = limb_paths(state, self.config.embodiment)
        if not paths:
            return point, seen, np.zeros(len(now), bool)
        moments = find_moments(state, action, self.robot.events(episode), self.config.embodiment)
        upcoming = next_moment(moments, len(state))[now]
        places = np.array(
            [paths[limb][frame] for limb, frame in zip(moments.limbs, moments.frames, strict=True)]
        ).reshape(-1, 3)
        for column, view in enumerate(views):
            if view in self._cameras and len(places):
                at, inside = project(
                    self._cameras[view], places[upcoming], state[now], self.config.embodiment
                )
                at, cropped = crop_point(at, take, self.config.image_size)
                point[:, column], seen[:, column] = at, inside & cropped & (upcoming >= 0)
        return point, seen, decisions(moments, len(state))[now]

    def _all_takes(self, lengths: Mapping[_TakeKey, int]) -> Takes:
        latents = [couple.num_latents(length, self.config.couple) for length in lengths.values()]
        body, episode, version = (np.array(c) for c in zip(*lengths, strict=True))
        return Takes(
            body=np.array([BODIES.index(b) for b in body], np.int32),
            episode=episode.astype(np.int32),
            version=version.astype(np.int32),
            length=np.array(list(lengths.values()), np.int32),
            latents=np.array(latents, np.int32),
            first=np.concatenate([[0], np.cumsum(latents)[:-1]]).astype(np.int64),
            present=np.array([view_columns(self.sources[b], self.config)[1] for b in body]),
        )


_WORK: list[tuple[Planner, Labels]] = []


def _start(planner: Planner, labels: Labels) -> None:
    _WORK.append((planner, labels))


def _part(first: int, pairs: Sequence[Pair]) -> Part:
    planner, labels = _WORK[0]
    return planner.part(first, pairs, labels)


def _joined(rows: Sequence[Rows]) -> Rows:
    return Rows(**{f.name: np.concatenate([getattr(r, f.name) for r in rows]) for f in fields(Rows)})


def _drawn(
    decision: Bool[np.ndarray, " N"],
    meant: Bool[np.ndarray, " N"],
    config: SampleConfig,
    rng: np.random.Generator,
) -> Int64[np.ndarray, " S"]:
    """Which states of a take are kept: all that are meant, or so many, of which a share are decision points."""
    states = np.flatnonzero(meant)
    decision = decision[states]
    if config.states is None or config.states >= len(states):
        return states
    decisive, rest = states[decision], states[~decision]
    wanted = min(len(decisive), round(config.decisive * config.states))
    wanted = max(wanted, config.states - len(rest))
    parts = [
        rng.choice(decisive, wanted, replace=False),
        rng.choice(rest, config.states - wanted, replace=False),
    ]
    return np.sort(np.concatenate(parts)).astype(np.int64)
