"""The robot's side of hostbot: messages in the openpi websocket format."""

from hostbot_client.codec import BadMessage, pack, unpack

__version__ = "0.1.0"
__all__ = ["BadMessage", "pack", "unpack"]
