"""The two sizes of one model: what a laptop runs, and the paper's."""

from __future__ import annotations

from hostbot.model.experts import ExpertConfig
from hostbot.model.host import HostConfig
from hostbot.model.tokens import GridConfig


def tiny_model() -> HostConfig:
    """Nine million parameters: three 64x64 views, 48 tokens a frame, 17 demo frames, 16 actions."""
    return HostConfig(
        video=ExpertConfig(
            dim=256, ffn_dim=1024, num_layers=6, num_heads=4, head_dim=64, text_dim=256, freq_dim=128
        ),
        action=ExpertConfig(
            dim=128, ffn_dim=512, num_layers=6, num_heads=4, head_dim=64, text_dim=256, freq_dim=128
        ),
        grid=GridConfig(latent_channels=16, num_views=3, view_height=8, view_width=8, demo_latents=5),
        action_dim=20,
        state_dim=20,
        horizon=16,
        text_length=24,
        action_head_norm=True,
    )


def wan5b_model() -> HostConfig:
    """Wan2.2-TI2V-5B and a 1,024-wide action expert: three 224x224 views, 147 tokens a frame."""
    return HostConfig(
        video=ExpertConfig(dim=3072, ffn_dim=14336, num_layers=30, num_heads=24, head_dim=128, text_dim=4096),
        action=ExpertConfig(dim=1024, ffn_dim=4096, num_layers=30, num_heads=24, head_dim=128, text_dim=4096),
        grid=GridConfig(latent_channels=48, num_views=3, view_height=14, view_width=14, demo_latents=7),
        action_dim=20,
        state_dim=20,
        horizon=32,
        text_length=512,
    )
