"""The paper's frame encoder: Qwen3-VL-Embedding, fine-tuned whole, eq:embedding.

A time step's views are an image sequence in one prompt; h_t is the last layer's hidden state at the end token. The
width is the checkpoint's own (4,096 for 8B, 2,048 for 2B; the paper's 1,536 is no Qwen3-VL-Embedding's).

Legend: M prompts (one a time step), P pictures of all of them, L tokens (padded), D width.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# (transformers has few types)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from hostbot.align.encoders import Clips, FrameEncoder
from hostbot.config import read_json
from hostbot.types import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SYSTEM = "<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n"
VIEW = "<|vision_start|>{pads}<|vision_end|>"
CLOSE = "<|im_end|>\n<|im_start|>assistant\n"
PAD, END = "<|image_pad|>", "<|endoftext|>"


@dataclass(frozen=True, kw_only=True)
class QwenConfig:
    """Which checkpoint, and how it is asked."""

    folder: str
    """A Qwen3-VL-Embedding checkpoint as published: config.json, *.safetensors, tokenizer and preprocessor files."""
    size: int = 224
    """Pixels a side of a frame; a multiple of the patch size times the merge size (32)."""
    embedding: int = 128
    instruction: str = "Represent the user's input."
    checkpoint_gradients: bool = True
    steps_at_once: int = 64
    """In one forward pass when nothing is learned, so that a long video fits in memory."""


class QwenFrameEncoder(FrameEncoder):
    """Qwen3-VL's whole forward pass a time step, then the projection."""

    def __init__(self, config: QwenConfig, *, pretrained: bool = True) -> None:
        folder = Path(config.folder)
        model = _model(folder, pretrained)
        super().__init__(model.config.text_config.hidden_size, config.embedding)
        self.config, self.size, self.model = config, config.size, model
        self.pixels = _Pixels(folder, config.size)
        self.prompts = _Prompts(_tokenizer(folder), config.instruction, self.pixels.tokens)
        if config.checkpoint_gradients:
            model.gradient_checkpointing_enable()

    def units(self) -> list[nn.Module]:
        """Each block of the language model and of the vision tower."""
        return [*self.model.language_model.layers, *self.model.visual.blocks]

    def hidden(self, clips: Clips, views: Bool[Tensor, "K B V"]) -> Float[Tensor, "K B T D"]:
        """The end token's state of every step; single frames, their neighbours play no part.

        One pass a choice of views while gradients are wanted: sharded processes must run the model equally often.
        """
        return torch.stack([self._chosen(clips, choice) for choice in views])

    def _chosen(self, clips: Clips, views: Bool[Tensor, "B V"]) -> Float[Tensor, "B T D"]:
        counted = clips.counted()
        counts = (counted * views.sum(-1, keepdim=True))[counted].tolist()
        at_once = len(counts) if torch.is_grad_enabled() else self.config.steps_at_once
        pictures = clips.pictures(clips.places(views))
        states, first = [], 0
        for start in range(0, len(counts), at_once):
            chunk = counts[start : start + at_once]
            states.append(self.states(pictures[first : first + sum(chunk)], chunk))
            first += sum(chunk)
        found = torch.cat(states).float()
        out = found.new_zeros(*counted.shape, found.shape[-1])
        return out.masked_scatter(counted[..., None], found)

    def states(self, pictures: UInt8[Tensor, "P h w 3"], counts: Sequence[int]) -> Float[Tensor, "M D"]:
        """The last layer's hidden state at the end token of prompts of so many pictures each."""
        ids, mask = (x.to(pictures.device) for x in self.prompts.batch(counts))
        patches, grid = self.pixels(pictures, self.model.visual.dtype)
        found = self.model(
            input_ids=ids,
            attention_mask=mask,
            pixel_values=patches,
            image_grid_thw=grid,
            mm_token_type_ids=(ids == self.model.config.image_token_id).int(),
            use_cache=False,
        )
        return found.last_hidden_state[:, -1]


class _Prompts:
    """Token ids of prompts with any number of pictures; all prompts with as many are the same."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, instruction: str, tokens: int) -> None:
        self.tokenizer, self.instruction, self.tokens = tokenizer, instruction, tokens

    def ids(self, num_views: int) -> list[int]:
        """One prompt."""
        text = SYSTEM.format(instruction=self.instruction)
        text += VIEW.format(pads=PAD * self.tokens) * num_views + CLOSE + END
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def batch(self, counts: Sequence[int]) -> tuple[Int[Tensor, "M L"], Int[Tensor, "M L"]]:
        """Prompts and which tokens count; shorter ones are padded in front, so that all end with the end token."""
        prompts = {count: self.ids(count) for count in set(counts)}
        length = max(map(len, prompts.values()))
        front = {count: length - len(ids) for count, ids in prompts.items()}
        rows = {count: [ids[-1]] * front[count] + ids for count, ids in prompts.items()}
        masks = {count: [0] * front[count] + [1] * len(ids) for count, ids in prompts.items()}
        return torch.tensor([rows[c] for c in counts]), torch.tensor([masks[c] for c in counts])


class _Pixels:
    """Patches as Qwen's own image processor lays them out, made on the device the frames are on."""

    def __init__(self, folder: Path, size: int) -> None:
        found = read_json(folder / "preprocessor_config.json")
        self.patch, self.merge = int(found["patch_size"]), int(found["merge_size"])
        self.temporal = int(found["temporal_patch_size"])
        self.mean, self.std = (torch.tensor(found[name]) for name in ("image_mean", "image_std"))
        if size % (self.patch * self.merge):
            raise BadInput(f"size {size} must be a multiple of {self.patch * self.merge} for {folder}")
        self.side = size // self.patch

    @property
    def tokens(self) -> int:
        """Tokens a picture takes in the prompt."""
        return (self.side // self.merge) ** 2

    def __call__(
        self, pictures: UInt8[Tensor, "P h w 3"], dtype: torch.dtype
    ) -> tuple[Float[Tensor, "patches values"], Int[Tensor, "P 3"]]:
        """Patches in the order the merger wants them, and each picture's grid (1, rows, columns)."""
        mean, std = self.mean.to(pictures.device), self.std.to(pictures.device)
        x = ((pictures.float() / 255 - mean) / std).permute(0, 3, 1, 2)
        merged = (self.side // self.merge, self.merge, self.patch)
        x = x.reshape(len(x), 3, *merged, *merged).permute(0, 2, 5, 3, 6, 1, 4, 7)
        x = x.unsqueeze(-3).expand(*x.shape[:-2], self.temporal, *x.shape[-2:])
        grid = torch.tensor([[1, self.side, self.side]], device=pictures.device).expand(len(pictures), -1)
        return x.reshape(len(pictures) * self.side**2, -1).to(dtype), grid


def _model(folder: Path, pretrained: bool) -> Any:
    from transformers import Qwen3VLConfig, Qwen3VLModel

    if not (folder / "config.json").is_file():
        raise BadInput(
            f"{folder} holds no checkpoint: it has no config.json; give a Qwen3-VL-Embedding folder"
        )
    config = Qwen3VLConfig.from_pretrained(folder, local_files_only=True)
    if not pretrained:
        return Qwen3VLModel(config)
    loaded: Any = Qwen3VLModel.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="sdpa", output_loading_info=True,
        local_files_only=True, use_safetensors=True,
    )  # fmt: skip
    model, report = loaded
    if report["missing_keys"]:
        odd = ", ".join(sorted(report["missing_keys"])[:3])
        raise BadInput(
            f"{folder} lacks {len(report['missing_keys'])} weights of a Qwen3-VL model, such as {odd}"
        )
    return model


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for token in (PAD, END, "<|vision_start|>", "<|vision_end|>"):
        if tokenizer.convert_tokens_to_ids(token) in (None, tokenizer.unk_token_id):
            raise BadInput(
                f"the tokenizer in {folder} does not know {token}; give a Qwen3-VL-Embedding folder"
            )
    return tokenizer
