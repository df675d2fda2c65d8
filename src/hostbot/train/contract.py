"""What the loop asks of a stage, whom it tells, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import nn

B_co = TypeVar("B_co", covariant=True)
TOTAL = "total"
"""The figure that is the loss."""


class Stage(Protocol[B_co]):
    """What is trained and on what; the loop knows nothing else of it."""

    @property
    def module(self) -> nn.Module:
        """Whose parameters learn; called with (batch, generator), it returns figures, ``total`` the loss."""

    def batch(self, step: int, micro: int) -> B_co:
        """A micro-batch, a function of its numbers."""

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        """What is logged of the means of figures."""

    def validate(self, step: int) -> Mapping[str, float]:
        """Figures on held-out data."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Whoever wants to know."""

    on_step: Callable[[int], None] = lambda step: None
    on_log: Callable[[Mapping[str, Any]], None] = lambda record: None
    on_warning: Callable[[str], None] = lambda sentence: None
    on_steps: Callable[[int], None] = lambda steps: None
    """The number of steps was fitted to the clock."""
    on_save: Callable[[int], None] = lambda step: None
    """A checkpoint was written, not at the end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    step: int
    finished: bool
    """Whether all steps are done; else a limit or a signal stopped it."""
    signal: int = 0
