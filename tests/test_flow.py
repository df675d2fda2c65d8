import itertools

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from hypothesis import given
from hypothesis import strategies as st

from hostbot import flow


@pytest.mark.parametrize("s", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("num_steps", [1, 10, 20])
def test_schedule_and_steps_equal_diffusers(s, num_steps):
    scheduler = FlowMatchEulerDiscreteScheduler(shift=s)
    scheduler.set_timesteps(sigmas=np.linspace(1, 0, num_steps + 1)[:-1])
    sigmas = flow.schedule(num_steps, s)
    torch.testing.assert_close(sigmas, scheduler.sigmas, atol=1e-6, rtol=0)
    torch.testing.assert_close(sigmas[:-1] * flow.NUM_TIMESTEPS, scheduler.timesteps, atol=1e-3, rtol=0)
    g = torch.Generator().manual_seed(0)
    ours = theirs = torch.randn(3, 4, generator=g)
    for i, t in enumerate(scheduler.timesteps):
        velocity = torch.randn(3, 4, generator=g)
        theirs = scheduler.step(velocity, t, theirs).prev_sample
        ours = flow.euler(ours, velocity, float(sigmas[i]), float(sigmas[i + 1]))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 8))
def test_shift_keeps_ends_and_order(a, b, s):
    low, high = sorted((a, b))
    levels = flow.shift(torch.tensor([0.0, low, high, 1.0], dtype=torch.float64), s)
    assert levels[0] == 0
    assert levels[3] == pytest.approx(1)
    assert (levels.diff() >= 0).all()


def test_weight_is_largest_in_the_middle_and_symmetric():
    sigma = torch.linspace(0, 1, 101, dtype=torch.float64)
    weight = flow.sigma_weight(sigma)
    assert weight.argmax() == 50
    torch.testing.assert_close(weight, weight.flip(0))
    assert weight[0].item() == pytest.approx(np.exp(-0.5))


def test_the_true_velocity_has_no_loss_and_leads_from_noise_to_data():
    g = torch.Generator().manual_seed(1)
    clean, noise = torch.randn(2, 5, 3, generator=g), torch.randn(2, 5, 3, generator=g)
    assert flow.velocity_loss(noise - clean, clean, noise, torch.ones(2)) == 0
    sigmas, state = flow.schedule(7, 5.0), noise
    for now, then in itertools.pairwise(sigmas):
        torch.testing.assert_close(state, flow.add_noise(clean, noise, now.expand(2)))
        state = flow.euler(state, noise - clean, float(now), float(then))
    torch.testing.assert_close(state, clean)


def test_loss_is_the_weighted_mean_over_samples():
    velocity, zeros = torch.tensor([[1.0, 1.0], [3.0, 3.0]]), torch.zeros(2, 2)
    assert flow.velocity_loss(velocity, zeros, zeros, torch.tensor([2.0, 1.0])) == (2 * 1 + 9) / 2


def test_solver_state_stays_float32_with_half_precision_velocities():
    assert flow.euler(torch.ones(2), torch.ones(2, dtype=torch.bfloat16), 1.0, 0.9).dtype == torch.float32
    with pytest.raises(ValueError, match="at least one"):
        flow.schedule(0, 3.0)
