"""How verbs load a policy: from its folder, onto the device there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.policy.policy import Policy

Dtype = Literal["float32", "bfloat16"]


def load_policy(folder: Path, device: str, dtype: Dtype, largest_batch: int = 1) -> Policy:
    """A policy for at most so many robots at once; videos it has watched before are found in the user's cache."""
    import torch

    from hostbot.policy.policy import Policy, PolicyConfig

    if not folder.is_dir():
        raise BadInput(f"there is no policy at {folder}: give the folder that training wrote")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; leave --device out, or say --device cpu")
    sizes = tuple(2**n for n in range((largest_batch - 1).bit_length() + 1))
    config = PolicyConfig(batch_sizes=sizes, cache=Path("~/.cache/hostbot/latents").expanduser())
    weights = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    return Policy.load(folder, device=device, dtype=weights, config=config)
