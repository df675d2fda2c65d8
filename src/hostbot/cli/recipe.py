"""How much of everything ``hostbot reproduce`` records and learns from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How much of everything."""

    families: tuple[str, ...] = ()
    robot: int = 10
    """Robot episodes a task in a round of what pieces that act learn from."""
    first: float = 0.08
    """Size of the first round as a share of the others: a run begins with it, and fuses its layers meanwhile."""
    at_least: int = 30_000
    """Samples that are waited for before the first step."""
    recording: float = 0.7
    """Share of a piece's time in which rounds are begun; encoding and drawing take from the GPU what learning needs."""
    balance: float = 0.5
    """Half way between as many of each task and as many of each family."""
    human: int = 5
    variants: int = 3
    """Colourings of every task's things in a round; every round has others."""
    acted: int = 1000
    """Drills of a round that are executed whole, by either body."""
    led_every: int = 4
    """Rounds of which one is led: experts go on where a policy has got to by itself."""
    led: int = 2
    """Trials of each training task that lead."""
    led_seconds: float = 7.0
    """How long each of those is; where a robot stands after that, it has stood before."""
    led_times: int = 2
    """How often each of those is used, up to other steps."""
    led_states: int = 24
    led_demos: int = 2
    """States of what experts then do, beside each of so many videos: few executions that count as much as many."""
    states: int = 12
    """States that are learned from of an episode beside a video, drawn for each of its videos."""
    judged: int = 8
    """States of an episode that a piece is judged by."""
    demos: int = 1
    """Videos an episode is learned beside, each time in the mirror or not."""
    decisive: float = 0.3
    """Share of those states at which it is decided what comes next, and of those that a step learns from."""
    demo_takes: int = 3
    """Versions of a person's video in acting, each with its own speed, colours and framing."""
    drills: int = 16_000
    """Robots, sketched in two pictures each, that are about to touch something or to put it down: for matching."""
    shown: int = 16_000
    """People's videos that they are matched with."""
    held_out: int = 400
    """Drills of either body that nothing is learned from."""
    untold: float = 0.4
    misled: float = 0.25
    """Of steps with a video, those in which nothing is said, and those in which something else is: what is shown
    counts."""
    drill_share: float = 0.25
    """Of the steps of acting, so that matching is not forgotten."""
    stray: float = 1.5
    """How far recorded robots stray from their way, and get back."""
    midway: float = 0.5
    """Share of them that begin in the midst of their task, where somebody has lost the way."""
    side: int = 64
    """Of recorded pictures, which are kept as they are until they are encoded."""
    seen: int = 2
    """Episodes a task that the VAE learns from."""
    clips: int = 20_000
    vae_batch: int = 128
    chroma: float = 3.0
    """How much more the VAE's errors in colour count."""
    channels: int = 8
    decoder_width: int = 16
    patch: int = 4
    """Latents along a token's side; the VAE's are fine."""
    stem: int = 64
    """Channels of the convolutions before the cut into tokens; a policy without them that is gone on from gets them."""
    batch: int = 512
    shared: int = 4
    lr: float = 5e-4
    point: float = 0.5
    shift: int = 2
    """Latents by which pictures are moved at most in acting: half a token, so that things are seen anywhere in one."""
    validate_every: int = 2000
    trials: int = 20
    execute: int = 8
    """Steps of a chunk before the robot looks again."""
    films: int = 8
    suite: str = "novel"


SMALL = Recipe(
    families=("press",), robot=4, first=0.5, at_least=10, human=2, variants=2, acted=8, states=2, led_every=2,
    led=1, led_times=2, led_states=4, judged=4, drills=48, shown=48, held_out=16, seen=1, clips=40, vae_batch=2,
    batch=8, validate_every=10, trials=1, films=1, suite="train",
)  # fmt: skip
"""Every step in small: proves the way, learns nothing."""
