"""A robot's control loop against a hostbot server, with a robot made of numbers: copy this file and fill in yours.

    hostbot serve --rehearse                       # in one terminal: a policy that keeps the robot where it is
    python examples/mock_robot.py --seconds 5      # in another, on the robot's computer

Needs hostbot-client only.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

from hostbot_client import (
    BrokerConfig,
    ChunkBroker,
    ControlLoop,
    Guard,
    Limits,
    PolicyClient,
    Tick,
    Watchdog,
    arm_limits,
    run_robot,
)

REST = np.tile([0.25, 0.0, 0.15, 1, 0, 0, 0, 1, 0, 0.04], 2).astype(np.float32)


class MockRobot:
    """Replace the four methods by your driver's. All of them must return at once."""

    def __init__(self, cameras: list[str], prompt: str) -> None:
        self.now, self.cameras, self.prompt = REST.copy(), cameras, prompt

    def observe(self) -> dict[str, object]:
        pictures = {name: np.zeros((224, 224, 3), np.uint8) for name in self.cameras}
        return {"state": self.state(), "images": pictures, "prompt": self.prompt}

    def state(self) -> np.ndarray:
        return self.now.copy()

    def command(self, action: np.ndarray) -> None:
        self.now = np.array(action, np.float32)

    def hold(self) -> None:
        pass


def limits(rate_hz: float) -> Limits:
    """What this robot may be told: measure your own workspace and start slowly (docs/robot.md)."""
    arms = [
        arm_limits(limb, low=(0.0, -0.35, 0.0), high=(0.5, 0.35, 0.35), gripper=(0.0, 0.08), speed=0.25)
        for limb in ("left", "right")
    ]
    return Limits((*arms[0], *arms[1]), rate_hz)


def shown(tick: Tick) -> None:
    if tick.note:
        print(f"tick {tick.number}: {tick.state.value}: {tick.note}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="ws://127.0.0.1:8000")
    parser.add_argument("--prompt", default="stack the bowls")
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    client = PolicyClient(arguments.url, token=os.environ.get("HOSTBOT_TOKEN"))
    server = client.wait(30)
    rate = float(server["control_hz"])
    guard = Guard(limits(rate), log="refused.jsonl")
    guard.limits.check_parts(server["parts"])
    broker = ChunkBroker(client.infer, BrokerConfig(rate_hz=rate))
    loop = ControlLoop(
        MockRobot(list(server["cameras"]), arguments.prompt), broker, guard, Watchdog(broker.clock())
    )
    try:
        state = run_robot(loop, seconds=arguments.seconds, shown=shown)
    finally:
        client.close()
    print(f"{state.value} after {loop.number} ticks; {len(guard.refused)} chunks were refused")


if __name__ == "__main__":
    main()
