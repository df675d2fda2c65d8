"""The robot's side of hostbot: talk to a policy server, check what it says, hold when unsure."""

from hostbot_client.broker import BrokerConfig, ChunkBroker
from hostbot_client.client import PolicyClient, Refused, ServerLost
from hostbot_client.codec import BadMessage, pack, unpack
from hostbot_client.guard import Guard, Refusal, Verdict
from hostbot_client.limits import BadLimits, Limits, PartLimits, arm_limits, load_limits
from hostbot_client.robot import ControlLoop, Robot, Tick, run_robot
from hostbot_client.watchdog import State, Watchdog, WatchdogConfig

__version__ = "0.1.0"
__all__ = [
    "BadLimits",
    "BadMessage",
    "BrokerConfig",
    "ChunkBroker",
    "ControlLoop",
    "Guard",
    "Limits",
    "PartLimits",
    "PolicyClient",
    "Refusal",
    "Refused",
    "Robot",
    "ServerLost",
    "State",
    "Tick",
    "Verdict",
    "Watchdog",
    "WatchdogConfig",
    "arm_limits",
    "load_limits",
    "pack",
    "run_robot",
    "unpack",
]
