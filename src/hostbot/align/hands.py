"""What hands do, read from pictures: found in the whole picture, seen closely, followed through the video.

A hand is a tenth of a picture wide and how far it is open is two pixels; a network that pools over the picture loses
them. So where hands are is found first, and a square around each is seen at full resolution, with the frames just
before and after it at the same place, so that what moves in it is the hand's own motion. What one moment leaves open
its neighbours tell: convolutions along the video see how a hand came and where it goes. They know no clock: a still
video has one posture throughout.

Legend: M pictures, G glimpses of each, N glimpses in all, B clips, T steps, V views, K choices of views,
s pixels a side of a glimpse, D width, P numbers of a posture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from hostbot.align.encoders import Clips
from hostbot.align.layers import ChannelNorm, Residual, by_view, kind_of, pool_views
from hostbot.align.posture import GLIMPSES, MOTION, POSTURE
from hostbot.types import BadInput

_STEM = 16
"""A picture's side is so many times that of the last maps hands are found on; a glimpse's is eight times its own."""
_CLOSE = 8
_MAPS = 64
_ONE = 0.1
"""Halves of a picture's side between places that are one."""
_FEW, _KEPT = 24, 16
"""Channels of a picture's and a glimpse's last maps, before they are laid flat."""


Light: TypeAlias = "tuple[Float[Tensor, 'M 3'], Float[Tensor, 'M 1']]"
"""Factors of a picture's colours and what is added to them."""


@dataclass(frozen=True, kw_only=True)
class HandsConfig:
    """Sizes of the network that reads hands."""

    side: int = 40
    """Pixels of a glimpse."""
    far: tuple[int, ...] = (-2, 0, 2)
    """Which frames are searched for hands, counted from each."""
    near: tuple[int, ...] = (-4, -2, -1, 0, 1, 2, 4)
    """Which frames a glimpse sees."""
    wide: int = 24
    """Channels of the search after its first convolution."""
    fine: int = 48
    """Channels of a glimpse after its first convolution."""
    context: int = 128
    width: int = 256
    along: int = 112
    """Width of the convolutions along the video."""
    reach: tuple[int, ...] = (1, 2, 4, 8)
    """Steps between what each of them sees."""
    share: float = 0.7
    """Of a point that the posture makes up, the rest being the embedding's."""

    def __post_init__(self) -> None:
        if (
            self.side % _CLOSE
            or self.side < _CLOSE
            or not self.near
            or not self.far
            or not 0 < self.share < 1
        ):
            raise BadInput(
                f"a glimpse's side must be a multiple of {_CLOSE}, got {self.side}, near and far must name frames, "
                f"got {self.near} and {self.far}, and share lies between 0 and 1, got {self.share}"
            )


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is told of a clip's steps, for each choice of views."""

    posture: Float[Tensor, "K B T P"]
    spots: Float[Tensor, "B T V G 2"]
    """Where hands were found in each view; 0 in views that were not looked at."""


def corners(spots: Float[Tensor, "M G 2"], size: int, side: int) -> Int[Tensor, "M G 2"]:
    """Column and row of the first pixel of glimpses around places that are told from -1 to 1; all lie inside."""
    middle = 0.5 * (spots.float() + 1) * size
    return (middle - 0.5 * side).round().long().clamp(0, size - side)


def middles(first: Int[Tensor, "M G 2"], size: int, side: int) -> Float[Tensor, "M G 2"]:
    """Where glimpses lie, from -1 to 1."""
    return (first.float() + 0.5 * side) * (2 / size) - 1


def as_one(spots: Float[Tensor, "M G 2"]) -> Float[Tensor, "M G 2"]:
    """Two places as close as those of one hand are one, which is looked at once."""
    middle = spots.mean(1, keepdim=True).expand(spots.shape)
    return torch.where(((spots[:, :1] - spots[:, 1:]).norm(dim=-1) < _ONE)[..., None], middle, spots)


def cut(
    clips: Clips, places: Int[Tensor, "N 3"], first: Int[Tensor, "N 2"], side: int, offset: int
) -> UInt8[Tensor, "N s s 3"]:
    """Squares of pictures, or of those so many frames later; nothing but them is read."""
    clip, step, view = (x[:, None, None] for x in places.unbind(1))
    frame = torch.minimum((clips.picked[clip, step] + offset).clamp(min=0), clips.lengths[clip] - 1)
    along = torch.arange(side, device=first.device)
    columns, rows = first[:, None, None, 0] + along, first[:, 1, None, None] + along[:, None]
    return clips.frames[clip, frame, view, rows, columns]


def centres(heights: Float[Tensor, "M G h w"]) -> Float[Tensor, "M G 2"]:
    """Where the weight of each map's softmax lies, from -1 to 1."""
    across, down = (_cells(heights.shape[k], heights.device) for k in (3, 2))
    weights = heights.float().flatten(2).softmax(-1).view(heights.shape)
    return torch.stack([(weights.sum(2) * across).sum(-1), (weights.sum(3) * down).sum(-1)], -1)


def _cells(num: int, device: torch.device) -> Float[Tensor, " n"]:
    return (torch.arange(num, device=device) + 0.5) * (2 / num) - 1


def _smaller(into: int, out: int) -> nn.Conv2d:
    return nn.Conv2d(into, out, 3, stride=2, padding=1)


class Follow(nn.Module):
    """A convolution along the video, over what is there: beyond its ends its first and last step go on."""

    def __init__(self, width: int, apart: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.along = nn.Conv1d(width, width, 5, dilation=apart)
        self.out = nn.Linear(width, width)
        self.beyond = 2 * apart
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "B T D"], last: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
        """Add what the neighbours tell."""
        steps = torch.arange(-self.beyond, x.shape[1] + self.beyond, device=x.device)
        held = torch.minimum(steps.clamp(min=0)[None], last[:, None])
        seen = self.norm(x).gather(1, held[..., None].expand(-1, -1, x.shape[2]))
        return x + self.out(F.gelu(self.along(seen.transpose(1, 2)).transpose(1, 2)))


class HandReader(nn.Module):
    """A network beside the embedding's, taught by what a renderer knows (``teach.py``)."""

    def __init__(self, config: HandsConfig, size: int) -> None:
        super().__init__()
        if config.side > size or size % _STEM:
            raise BadInput(
                f"glimpses of {config.side} pixels do not fit pictures of {size}, a multiple of {_STEM}"
            )
        self.config, self.size = config, size
        c, d, wide, fine = config.context, config.width, config.wide, config.fine
        self.search = nn.Sequential(
            nn.Conv2d(3 * len(config.far), wide, 8, stride=4, padding=2), ChannelNorm(wide), nn.GELU(),
            _smaller(wide, 2 * wide), Residual(2 * wide), ChannelNorm(2 * wide),
        )  # fmt: skip
        self.whole = nn.Sequential(_smaller(2 * wide, _MAPS), Residual(_MAPS), ChannelNorm(_MAPS))
        self.few = nn.Conv2d(_MAPS, _FEW, 1)
        self.find = nn.Linear(_FEW * (size // _STEM) ** 2, c)
        self.here, self.about = nn.Conv2d(2 * wide, _MAPS, 1), nn.Conv2d(_MAPS, _MAPS, 1)
        self.which = nn.Linear(c, _MAPS)
        self.point = nn.Conv2d(_MAPS, GLIMPSES, 1)
        self.role = nn.Embedding(2, c)
        self.trunk = nn.Sequential(
            nn.Conv2d(3 * len(config.near), fine // 2, 3, padding=1), nn.GELU(),
            _smaller(fine // 2, fine), ChannelNorm(fine), Residual(fine),
            _smaller(fine, 2 * fine), Residual(2 * fine), _smaller(2 * fine, 2 * fine), Residual(2 * fine),
            ChannelNorm(2 * fine), nn.Conv2d(2 * fine, _KEPT, 1),
        )  # fmt: skip
        self.close = nn.Linear(_KEPT * (config.side // _CLOSE) ** 2, d)
        self.place, self.around = nn.Linear(2 * GLIMPSES, d), nn.Linear(c, d)
        self.gate, self.mix = nn.Linear(d, 1), nn.Linear(d, d)
        self.once, self.moving = nn.Linear(d, len(POSTURE)), nn.Linear(d, len(MOTION))
        self.enter = nn.Linear(d, config.along)
        self.follow = nn.ModuleList(Follow(config.along, apart) for apart in config.reach)
        self.tell = nn.Linear(config.along, len(POSTURE))
        nn.init.zeros_(self.role.weight)

    def found(
        self, pixels: Float[Tensor, "M c s s"], riding: Bool[Tensor, " M"]
    ) -> tuple[Float[Tensor, "M c"], Float[Tensor, "M G 2"]]:
        """What a whole picture shows, and where hands are in it, the one further left first."""
        maps = self.search(pixels)
        whole = self.whole(maps)
        known = F.gelu(self.find(F.gelu(self.few(whole)).flatten(1)))
        about = F.interpolate(self.about(whole), scale_factor=2, mode="bilinear")
        spots = centres(self.point(F.gelu(self.here(maps) + about + self.which(known)[..., None, None])))
        return known.float() + self.role(riding.long()), spots

    def seen(
        self, pixels: Float[Tensor, "N c s s"], second: Bool[Tensor, " M"], at: Float[Tensor, "M G 2"]
    ) -> Float[Tensor, "M G D"]:
        """What glimpses show, knowing where they lie: a first one of each picture, then where there is one a second."""
        close = self.close(F.gelu(self.trunk(pixels)).flatten(1)).float()
        one, others = close[: len(second)], close[len(second) :]
        two = one.index_put((second.nonzero()[:, 0],), others)
        places = torch.cat([at, at.flip(1)], -1)  # its own, and the other's
        return F.layer_norm(torch.stack([one, two], 1), one.shape[-1:]) + self.place(places)

    def pooled(
        self, seen: Float[Tensor, "B T V D"], views: Bool[Tensor, "K B V"]
    ) -> Float[Tensor, "K B T D"]:
        """A step's views as one."""
        pooled = pool_views(seen, self.gate(seen).squeeze(-1).float(), views)
        return F.gelu(self.mix(F.layer_norm(pooled, pooled.shape[-1:]))).float()

    def followed(
        self, hidden: Float[Tensor, "B T D"], num_picked: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T P"]:
        """The posture of every step, of steps that follow one another."""
        with torch.autocast(hidden.device.type, enabled=False):
            x = self.enter(hidden.float())
            for layer in self.follow:
                x = layer(x, num_picked - 1)
            return self.tell(x)

    def searched(
        self, clips: Clips, places: Int[Tensor, "M 3"], light: Light | None = None
    ) -> tuple[Float[Tensor, "M c"], Float[Tensor, "M G 2"]]:
        """What whole pictures show, and where hands are in them."""
        whole = torch.cat([clips.pictures(places, offset) for offset in self.config.far], -1)
        return self.found(_pixels(whole, light, self.kind), clips.riding[places[:, 0], places[:, 2]])

    def closely(
        self,
        clips: Clips,
        places: Int[Tensor, "M 3"],
        spots: Float[Tensor, "M G 2"],
        around: Float[Tensor, "M c"],
        light: Light | None = None,
    ) -> Float[Tensor, "M D"]:
        """What is seen around some places; which pixels those are has no gradient."""
        side = self.config.side
        first = corners(as_one(spots.detach().float()), self.size, side)
        second = (first[:, 0] != first[:, 1]).any(-1)
        where = torch.cat([first[:, 0], first[second, 1]])
        which = torch.cat([places, places[second]])
        squares = torch.cat([cut(clips, which, where, side, offset) for offset in self.config.near], -1)
        lit = (
            None
            if light is None
            else (torch.cat([light[0], light[0][second]]), torch.cat([light[1], light[1][second]]))
        )
        seen = self.seen(_pixels(squares, lit, self.kind), second, middles(first, self.size, side))
        return F.gelu(seen + self.around(around)[:, None]).float().mean(1)

    @property
    def kind(self) -> torch.dtype:
        """What the convolutions compute in."""
        return kind_of(self.role.weight)

    def forward(self, clips: Clips, views: Bool[Tensor, "K B V"], at_once: int) -> Told:
        """Postures of all picked steps, taken to follow one another, for each choice of views."""
        places = clips.places(views.any(0))
        parts = []
        for chunk in places.split(at_once):
            around, spots = self.searched(clips, chunk)
            parts.append((self.closely(clips, chunk, spots, around), spots))
        seen, spots = (torch.cat(part) for part in zip(*parts, strict=True))
        hidden = self.pooled(by_view(seen, places, clips, views.shape[-1]), views)
        posture = self.followed(hidden.flatten(0, 1), clips.num_picked.repeat(len(views)))
        where = by_view(spots, places, clips, views.shape[-1])
        return Told(posture=posture.unflatten(0, hidden.shape[:2]), spots=where)


def _pixels(
    pictures: UInt8[Tensor, "M h w c"], light: Light | None, kind: torch.dtype
) -> Float[Tensor, "M c h w"]:
    """From 0 to 1, in another light where one is given; frames of one picture share it."""
    raw = pictures.to(kind)
    if light is None:
        return raw.permute(0, 3, 1, 2) / 255
    _, _, width, channels = pictures.shape
    gain = (light[0] / 255).repeat(
        1, width * channels // light[0].shape[1]
    )  # of a row: a long last side is fast
    rows = raw.flatten(2).mul_(gain[:, None].to(kind)).add_(light[1][:, None].to(kind))
    return rows.view(pictures.shape).permute(0, 3, 1, 2)
