"""How verbs open a memory, and with which embedder."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from hostbot.types import BadInput, Image

if TYPE_CHECKING:
    from hostbot.memory import DemonstrationMemory, Embedder


def default_memory() -> str:
    """``$HOSTBOT_MEMORY``, or a folder of the user's."""
    return os.environ.get("HOSTBOT_MEMORY") or str(Path("~/.hostbot/memory").expanduser())


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """What turns instructions and scenes into vectors; a memory stays with the one it was made with."""

    qwen: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Embed instructions and scenes with this Qwen3-VL-Embedding checkpoint, as in the paper (GPU)."""
    scenes: bool = False
    """Compare scenes too, by the alignment weights that ship; without, instructions only."""
    aligner: Annotated[Path | None, arg(metavar="FILE")] = None
    """Compare scenes too, by these alignment weights."""

    def make(self) -> Embedder:
        """The embedder these flags mean."""
        if self.qwen is not None and (self.scenes or self.aligner is not None):
            raise BadInput("--qwen embeds scenes too: leave --scenes and --aligner out")
        if self.qwen is not None:
            return _qwen(self.qwen)
        from hostbot.memory import Pair, TextOnly
        from hostbot.memory.phrases import PhraseVectors

        if self.aligner is None and not self.scenes:
            return TextOnly(PhraseVectors())
        from hostbot.align.aligner import load_aligner
        from hostbot.memory.scenes import AlignedScenes

        return Pair(PhraseVectors(), AlignedScenes(load_aligner(self.aligner)))


def _qwen(folder: Path) -> Embedder:
    import torch

    from hostbot.memory.qwen import QwenEmbedder

    return QwenEmbedder(folder, device="cuda" if torch.cuda.is_available() else "cpu")


def opened(
    where: str, embedding: Embedding | None = None, create: bool = False
) -> AbstractContextManager[DemonstrationMemory]:
    """The memory at an address, with an embedder where something is to be embedded."""
    from hostbot.memory import open_memory

    return open_memory(where, None if embedding is None else embedding.make(), create=create)


def first_frame(path: Path | None) -> Image | None:
    """The picture in a file, or the first of a video."""
    if path is None:
        return None
    from hostbot.video import PICTURES, open_video

    if path.suffix.lower() in PICTURES:
        import numpy as np
        from PIL import Image as Picture

        with Picture.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    with open_video(path) as reader:
        return reader.frames([0])[0]
