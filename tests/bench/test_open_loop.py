"""Open-loop errors by hand: a policy that says what was recorded has none."""

from types import SimpleNamespace

import numpy as np
import pytest

from hostbot.bench.open_loop import Comparison, errors
from tests.policy.small_policy import ROBOT


def compared(predicted, recorded, held):
    return Comparison(
        episode=0,
        instruction="x",
        recorded=recorded,
        predicted=predicted,
        held=held,
        starts=(0,),
        progress=(0.0,),
    )


def test_errors_by_hand():
    recorded = np.zeros((4, 20), np.float32)
    predicted, held = recorded.copy(), recorded + 2
    predicted[:, 3] = [1, -1, 3, np.nan]  # the last frame is reached by no chunk
    found = errors(SimpleNamespace(embodiment=ROBOT), [compared(predicted, recorded, held)])
    assert found.num_frames == 3
    assert found.mae[3] == pytest.approx(5 / 3)
    assert found.mse[3] == pytest.approx(11 / 3)
    assert (np.delete(found.mae, 3) == 0).all()
    assert (found.mae_still == 2).all()
