"""A performance as a Rerun recording: the three pictures, where in the video the robot thinks it is, and how sure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from hostbot.bench.movie import Moment
from hostbot.types import BadInput

_JPEG_QUALITY = 85


def write_performance(path: Path, shown: Iterable[Moment], fps: float, title: str) -> None:
    """Write an .rrd file."""
    try:
        import rerun as rr
    except ImportError:
        raise BadInput("a recording needs Rerun: pip install 'hostbot[rerun]'") from None
    stream = rr.RecordingStream("hostbot", recording_id=path.stem)
    stream.save(path)
    try:
        stream.log("instruction", rr.TextDocument(title), static=True)
        for frame, one in enumerate(shown):
            if frame == 0:
                stream.log("action", rr.SeriesLines(names=one.decision.embodiment.axis_names()), static=True)
            stream.set_time("frame", sequence=frame)
            stream.set_time("seconds", duration=frame / fps)
            for name in ("human", "robot", "foreseen"):
                picture = getattr(one, name)
                if picture is not None:
                    stream.log(f"views/{name}", rr.Image(picture).compress(jpeg_quality=_JPEG_QUALITY))
            for name in ("progress", "confidence"):
                if math.isfinite(getattr(one.decision, name)):
                    stream.log(f"belief/{name}", rr.Scalars(getattr(one.decision, name)))
            stream.log("action", rr.Scalars(one.decision.actions[one.step]))
    finally:
        stream.flush()
        stream.disconnect()
