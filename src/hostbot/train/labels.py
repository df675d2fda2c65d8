"""Where the correspondence of a pair comes from; processes that plan import this and little else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hostbot.align.labels import Labels as AlignmentLabels
from hostbot.couple import clock_maps
from hostbot.data.pairs import Body, Pair
from hostbot.sim.progress import correspondence
from hostbot.types import Correspondence, DataError, EpisodeSource


@dataclass(frozen=True)
class ByEvents:
    """The truth, from the events both recordings noted."""

    sources: Mapping[Body, EpisodeSource]

    def __call__(self, pair: Pair) -> Correspondence:
        """The correspondence of a pair."""
        ends = [(self.sources["robot"], pair.robot), (self.sources[pair.demo_body], pair.demo)]
        events = [source.events(index) for source, index in ends]
        for (source, index), found in zip(ends, events, strict=True):
            if not found:
                raise DataError(
                    f"{source.name}: episode {index} has no events, so there is no true correspondence; label the "
                    "data with `hostbot align label` and give that folder"
                )
        lengths = [source.episode(index).length for source, index in ends]
        return correspondence(events[0], events[1], lengths[0], lengths[1])


@dataclass(frozen=True)
class ByClock:
    """Shares of elapsed time."""

    sources: Mapping[Body, EpisodeSource]

    def __call__(self, pair: Pair) -> Correspondence:
        """The correspondence of a pair."""
        robot, demo = (
            self.sources["robot"].episode(pair.robot),
            self.sources[pair.demo_body].episode(pair.demo),
        )
        return clock_maps(robot.length, demo.length)


@dataclass(frozen=True)
class ByAlignment:
    """What `hostbot align label` found."""

    found: AlignmentLabels

    def __call__(self, pair: Pair) -> Correspondence | None:
        """The correspondence of a pair, None where it is not reliable."""
        key = (pair.robot, pair.demo)
        return self.found.correspondence(*key) if key in self.found else None
