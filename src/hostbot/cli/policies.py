"""How verbs load a policy: from its folder, onto the device there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.policy.policy import Policy

Dtype = Literal["float32", "bfloat16"]


SHIPPED = Path("shipped")
"""How the trained policy inside the package is called."""


def policy_folder(named: Path) -> Path:
    """Where a policy lies: in the folder of that name, or, as ``shipped``, in the package."""
    folder = Path(__file__).parents[1] / "weights" / "policy" if named == SHIPPED else named
    if not folder.is_dir():
        raise BadInput(
            f"there is no policy at {folder}: give the folder that training wrote, or say {SHIPPED} for the weights "
            "that come with hostbot"
        )
    return folder


def load_policy(
    named: Path, device: str, dtype: Dtype, largest_batch: int = 1, remember: bool = True
) -> Policy:
    """A policy for at most so many robots at once.

    Videos it has watched before are found in the user's cache, unless it is not to remember any.
    """
    import torch

    from hostbot.policy.policy import Policy, PolicyConfig

    folder = policy_folder(named)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; leave --device out, or say --device cpu")
    one_thread(device)
    sizes = tuple(2**n for n in range((largest_batch - 1).bit_length() + 1))
    cache = Path("~/.cache/hostbot/latents").expanduser() if remember else None
    config = PolicyConfig(batch_sizes=sizes, cache=cache)
    weights = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    return Policy.load(folder, device=device, dtype=weights, config=config)


def one_thread(device: str) -> None:
    """Let a policy on the CPU compute in one thread, unless ``OMP_NUM_THREADS`` says otherwise.

    Its tensors are small, and threads that wait for each other by spinning stand still when anything else wants a
    core: with two other processes on two cores a cycle of the tiny policy takes 1.5 s in one thread and 19 s in two
    (benchmarks/crowded.py).
    """
    if device == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)
