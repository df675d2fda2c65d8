"""The paper's embedder: one Qwen3-VL-Embedding model for instructions and scenes, eq:memory_embed.

Legend: B items, L tokens, d width (4,096 for 8B, 2,048 for 2B). The model's end token, after an instruction or after a
picture, is the vector; both are asked with the same system prompt, so that they lie in one space.
"""

# mypy: disable-error-code="no-untyped-call"
# (transformers has few types)

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from hostbot.align.qwen import CLOSE, END, SYSTEM, QwenConfig, QwenFrameEncoder
from hostbot.config import read_json
from hostbot.types import Image
from hostbot.video import fit_frames


class QwenEmbedder:
    """A published checkpoint, frozen; ``identity`` is its folder's name and its sizes, so name the folder well."""

    def __init__(
        self,
        folder: Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.bfloat16,
        size: int = 224,
    ) -> None:
        config = QwenConfig(folder=str(folder), size=size, checkpoint_gradients=False)
        encoder = QwenFrameEncoder(config).eval().requires_grad_(False)
        self._encoder, self._device = encoder, torch.device(device)
        encoder.model.to(self._device, dtype)
        width = int(encoder.model.config.text_config.hidden_size)
        layers = int(read_json(folder / "config.json")["text_config"]["num_hidden_layers"])
        self.identity = f"qwen-{folder.resolve().name}-{layers}x{width}-{size}"

    @torch.inference_mode()
    def embed_text(self, texts: Sequence[str]) -> Float32[np.ndarray, "B d"]:
        """Instructions, one pass each: they are short and few."""
        return np.concatenate([self._text(" ".join(text.split())) for text in texts])

    def _text(self, text: str) -> Float32[np.ndarray, "1 d"]:
        asked = SYSTEM.format(instruction=self._encoder.config.instruction) + text + CLOSE + END
        tokens = self._encoder.prompts.tokenizer(asked, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([tokens], device=self._device)
        found = self._encoder.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        return np.asarray(found.last_hidden_state[:, -1].float().cpu().numpy())

    @torch.inference_mode()
    def embed_scene(self, images: Sequence[Image]) -> Float32[np.ndarray, "B d"]:
        """Pictures, letterboxed to the model's size."""
        side = self._encoder.size
        fitted = np.concatenate([fit_frames(image[None], (side, side)) for image in images])
        states = self._encoder.states(torch.from_numpy(fitted).to(self._device), [1] * len(images))
        return np.asarray(states.float().cpu().numpy())
