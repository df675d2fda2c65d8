"""The loop of every stage: draw, learn, guard, step, log, save; stops by itself, and goes on where it stopped.

All randomness of a step is a function of (seed, step, micro-batch), so a checkpoint is weights, moments and a number.
"""

from __future__ import annotations

import itertools
import math
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from hostbot.data.batches import generator_for
from hostbot.train import checkpoint
from hostbot.train.ahead import Ahead
from hostbot.train.config import TrainConfig
from hostbot.train.contract import TOTAL, Hooks, Outcome, Stage
from hostbot.train.distributed import World
from hostbot.train.log import Log, Meter
from hostbot.train.optim import (
    Average,
    make_optimisers,
    named_trainable,
    optimiser_state,
    read_optimisers,
    set_rate,
    step_guarded,
)
from hostbot.types import BadInput

B = TypeVar("B")
_WARM, _TIMED, _AGAIN = 10, 30, 250
"""Steps before the pace is measured, those it is first measured on, and those after each of which it is once more."""
_ODD = 3.0
"""A step that takes so many times the median is not the pace."""
_MARGIN = 0.95
"""Share of the time left that steps may take; the rest is for validations and the last checkpoint."""


class _Unread:
    """Figures of a step on their way from the device."""

    def __init__(self, names: list[str], values: Tensor) -> None:
        self._names, self._event = names, None
        if values.device.type == "cuda":
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._values = values

    def read(self) -> dict[str, float]:
        """Wait for them."""
        if self._event is not None:
            self._event.synchronize()
        return dict(zip(self._names, self._values.tolist(), strict=True))


@dataclass
class Trainer(Generic[B]):
    """One run: a stage, its optimisers and its folder."""

    stage: Stage[B]
    config: TrainConfig
    run: Path
    world: World
    call: nn.Module
    """The module made ready for its ranks."""
    hooks: Hooks = field(default_factory=Hooks)
    tensorboard: bool = False
    minutes: float = math.inf
    fit: bool = False
    """Choose the number of steps by the pace of the first ones, so that the schedule ends when the minutes do."""
    begun: float = field(default_factory=time.monotonic)
    """When the minutes began."""
    learner: Callable[[B, torch.Generator], dict[str, Tensor]] | None = None
    """What to do instead of calling the module and going backward, where a step has one micro-batch."""
    run_ahead: bool = False
    """Begin a step before the figures of the last one are known; one process on a GPU only."""

    def __post_init__(self) -> None:
        if self.fit and not math.isfinite(self.minutes):
            raise BadInput("to fit a run's steps to the clock, say how many --minutes it has")
        self.micros = self.config.micros(self.world.rank, self.world.size)
        self.optimisers = make_optimisers(self.stage.module, self.config.optim)
        self.average = Average(self.stage.module, self.config.ema) if self.config.ema is not None else None
        self.meter, self.step, self.bad = Meter(), 0, 0
        self._names = {id(p): name for name, p in named_trainable(self.stage.module).items()}
        self._parameters = list(named_trainable(self.stage.module).values())
        self._asked = 0
        self._unsaved = ""
        self._times: list[float] = []
        self._seconds, self._waited, self._steps = 0.0, 0.0, 0
        self._ahead = Ahead(self.stage.batch, self.micros, self.world.device)
        self._unread: _Unread | None = None

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Everything a checkpoint holds."""
        for name, parameter in named_trainable(self.stage.module).items():
            yield f"model/{name}", parameter
        for name, value in (self.average.values if self.average else {}).items():
            yield f"ema/{name}", value
        yield from optimiser_state(self.optimisers, self._names)

    def save(self) -> bool:
        """Write a checkpoint; where that fails, say so and let the run go on: the next one may succeed."""
        notes = {"seed": self.config.seed, "meter": self.meter.sums, "bad": self.bad}
        try:
            checkpoint.save(self.run, self.step, self.state(), notes, self.world)
        except checkpoint.NotWritten as error:
            have = checkpoint.steps_of(self.run)
            kept = f"the last whole one is of step {have[-1]}" if have else "there is none yet"
            self._unsaved = f"the checkpoint of step {self.step} could not be written ({error}); {kept}"
            self.hooks.on_warning(self._unsaved)
            return False
        self._unsaved = ""
        if self.world.is_main:
            checkpoint.prune(self.run, self.config.keep)
        return True

    def resume(self) -> bool:
        """Go on from the last checkpoint; whether there was one."""
        have = checkpoint.steps_of(self.run)
        if not have:
            return False
        reader = checkpoint.Reader(checkpoint.folder_of(self.run, have[-1]))
        if reader.notes["seed"] != self.config.seed:
            raise BadInput(
                f"{self.run} was begun with seed {reader.notes['seed']}, not {self.config.seed}; use that one"
            )
        for name, parameter in named_trainable(self.stage.module).items():
            reader.read(f"model/{name}", parameter)
        for name, value in (self.average.values if self.average else {}).items():
            reader.read(f"ema/{name}", value)
        read_optimisers(self.optimisers, self._names, reader)
        self.step, self.meter.sums, self.bad = reader.step, reader.notes["meter"], reader.notes["bad"]
        return True

    def train(self) -> Outcome:
        """Run until done, out of time, or told to stop; a checkpoint is left in each case."""
        if self.world.is_main:
            (self.run / "checkpoints").mkdir(parents=True, exist_ok=True)
        if not checkpoint.steps_of(self.run) and not self.save():
            raise BadInput(f"{self._unsaved}: nothing was begun")
        log = Log(self.run, self.step, self.tensorboard) if self.world.is_main else None
        stop, begun_at = False, self.step
        with self._signals():
            while self.step < self.config.steps and not stop:
                stop = self._one_step(log)
                self.hooks.on_step(self.step)
                if self.fit:
                    self._fit(begun_at)
                if self.step % self.config.save_every == 0 and self.step < self.config.steps and self.save():
                    self.hooks.on_save(self.step)
        if not self.save():
            raise BadInput(f"{self._unsaved}; make room and run again with --resume")
        if log is not None and log.failed:
            self.hooks.on_warning(log.failed)
        return Outcome(step=self.step, finished=self.step >= self.config.steps, signal=self._asked)

    def _fit(self, begun_at: int) -> None:
        """After a few steps that warm up and a few that are timed, by the ranks' mean clock; then again and again.

        What runs beside a run comes and goes, and with it the pace: a rate that has not decayed when the time is over
        is worse than steps that are a little fewer or more than was thought.
        """
        done, now = self.step - begun_at, time.monotonic()
        if done >= _WARM:
            self._times.append(now)
        first = done == _WARM + _TIMED
        if not first and (done <= _WARM + _TIMED or (done - _WARM - _TIMED) % _AGAIN):
            return
        taken, self._times = [b - a for a, b in itertools.pairwise(self._times)], [now]
        if (
            first
        ):  # without steps in which something is compiled or saved; those of drills are shorter, and count
            taken = [t for t in taken if t <= _ODD * statistics.median(taken)]
        left = 60 * self.minutes - (now - self.begun)
        pace = self.world.total(torch.tensor([statistics.mean(taken), left], dtype=torch.float64))
        seconds, left = (pace / self.world.size).tolist()
        steps = self.step + max(1, int(_MARGIN * left / seconds))
        self.config = replace(self.config, steps=steps)
        if first:
            self.hooks.on_steps(steps)

    def _one_step(self, log: Log | None) -> bool:
        begin = time.perf_counter()
        set_rate(self.optimisers, self.config.optim, self.config.optim.scale(self.step, self.config.steps))
        sums: dict[str, Tensor] = {}
        waited = 0.0
        for place, micro in enumerate(self.micros):
            drawn = time.perf_counter()
            batch = self._ahead.get(self.step, micro)
            waited += time.perf_counter() - drawn
            with self._gathered(place == len(self.micros) - 1):
                self._learn(batch, micro, sums)
        # One transfer a step: means over micro-batches and ranks, the gradient's norm, whether anybody wants to stop.
        figures = {name: value / len(self.micros) for name, value in sums.items()} | {
            "grad_norm": self._clip()
        }
        if self.run_ahead:
            return self._run_ahead(figures, begin, waited, log)
        stop = sums[TOTAL].new_tensor(float(self._wants_to_stop()))
        values = self.world.total(torch.stack([*figures.values(), stop]).double() / self.world.size).tolist()
        means = dict(zip(figures, values[:-1], strict=True))
        fine = all(math.isfinite(value) for value in means.values())
        if fine:
            for optimiser in self.optimisers:
                optimiser.step()
        self._stepped(fine)
        self._note(means)
        self._time(begin, waited)
        self._tell(log)
        return values[-1] > 0

    def _run_ahead(self, figures: Mapping[str, Tensor], begin: float, waited: float, log: Log | None) -> bool:
        """Step at once, undone on the device where something is not finite, and look at the step before meanwhile."""
        values = torch.stack(list(figures.values())).double()
        step_guarded(self.optimisers, torch.isfinite(values).all())
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        before, self._unread = self._unread, _Unread(list(figures), values)
        self._read(before)
        self.step += 1
        if self.average is not None:
            self.average.update(self.stage.module, self.step)
        stop = self._wants_to_stop()
        if stop or self._due() or self.step % self.config.save_every == 0:
            self._read(self._unread)
            self._unread = None
        self._time(begin, waited)
        self._tell(log)
        return stop

    def _read(self, unread: _Unread | None) -> None:
        if unread is not None:
            means = unread.read()
            self._guard(all(math.isfinite(value) for value in means.values()))
            self._note(means)

    def _learn(self, batch: B, micro: int, sums: dict[str, Tensor]) -> None:
        device = self.world.device
        generator = generator_for(self.config.seed + 1, self.step, micro, device)
        if self.learner is not None and len(self.micros) == 1:
            figures = self.learner(batch, generator)
        else:
            with self._autocast():
                figures = self.call(batch, generator)
            (figures[TOTAL] / len(self.micros)).backward()
        for name, value in figures.items():
            value = value.detach().float()
            sums[name] = sums[name] + value if name in sums else value

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.world.device.type, torch.bfloat16)

    @contextmanager
    def _gathered(self, last: bool) -> Iterator[None]:
        """Ranks add their gradients once a step, at its last micro-batch."""
        if isinstance(self.call, DistributedDataParallel) and not last:
            with self.call.no_sync():
                yield
            return
        if self.world.mode in ("fsdp", "hsdp"):
            self.stage.module.set_requires_gradient_sync(last)  # type: ignore[operator]
        yield

    def _clip(self) -> Tensor:
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self.config.optim.clip)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _stepped(self, fine: bool) -> None:
        """After a step; where something was not finite nothing was changed."""
        self.step += 1
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        if self.average is not None and fine:
            self.average.update(self.stage.module, self.step)
        self._guard(fine)

    def _guard(self, fine: bool) -> None:
        """Give up where nothing is learned any more."""
        self.bad = 0 if fine else self.bad + 1
        if self.bad >= self.config.max_bad:
            raise BadInput(
                f"loss or gradient was not finite for {self.bad} steps in a row, up to step {self.step}; the weights "
                f"are those before it. Lower the learning rate and run again with --resume"
            )

    def _note(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            if math.isfinite(value):
                self.meter.add(name, value)
        self.meter.add("skipped", float(self.bad > 0))

    def _time(self, begin: float, waited: float) -> None:
        self._seconds += time.perf_counter() - begin
        self._waited += waited
        self._steps += 1

    def _due(self) -> bool:
        """Whether there is something to tell after this step."""
        last, every = self.step == self.config.steps, self.config.validate_every
        return last or self.step % self.config.log_every == 0 or bool(every and self.step % every == 0)

    def _tell(self, log: Log | None) -> None:
        due = self.step % self.config.log_every == 0 or self.step == self.config.steps
        record: dict[str, Any] = {"step": self.step} if due else {}
        if due:
            record |= self.stage.summary(self.meter.take()) | self._speed()
        if self.config.validate_every and self.step % self.config.validate_every == 0:
            record |= {"step": self.step} | {f"val/{k}": v for k, v in self.stage.validate(self.step).items()}
        if record and log is not None:
            log.write(record)
            self.hooks.on_log(record)

    def _speed(self) -> dict[str, float]:
        seconds, waited, steps = self._seconds, self._waited, self._steps
        self._seconds, self._waited, self._steps = 0.0, 0.0, 0
        found = {
            "lr": self.optimisers[0].param_groups[0]["lr"],
            "samples_per_s": round(steps * self.config.batch / max(seconds, 1e-9), 2),
            "data_wait": round(waited / max(seconds, 1e-9), 4),
        }
        if self.world.device.type == "cuda":
            found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        return found

    def _wants_to_stop(self) -> bool:
        return bool(self._asked) or time.monotonic() - self.begun > 60 * self.minutes

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the step they fall in; a second Ctrl-C at once."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self._asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._asked = number

        before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
