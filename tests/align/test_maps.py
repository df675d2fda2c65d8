import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hostbot.align import dtw
from hostbot.align.cost import MatchConfig, cells
from hostbot.align.maps import correspondence, correspondences, frame_map
from hostbot.types import BadInput

CASES, SIZE = 10_000, 16


def noisy_pairs(
    num: int, size: int, noise: float, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two noisy walks through the same places at speeds of their own, with random lengths."""
    g = torch.Generator().manual_seed(seed)
    places = torch.randn(num, 40, 8, generator=g).cumsum(1)
    sides = []
    for _ in range(2):
        lengths = torch.randint(2, size + 1, (num,), generator=g)
        speed = torch.rand(num, size, generator=g).square()
        at = torch.where(torch.arange(size) < lengths[:, None], speed, 0.0).cumsum(1)
        at = (39 * at / at[:, -1:]).long()
        walk = places.gather(1, at[:, :, None].expand(-1, -1, 8)) + noise * torch.randn(
            num, size, 8, generator=g
        )
        sides.append((torch.nn.functional.normalize(walk, dim=-1), lengths))
    return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def steps_back(found: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Which pairs have a map that steps back."""
    inside = torch.arange(1, found.shape[1]) < lengths[:, None]
    return ((found.diff(dim=1) < 0) & inside).any(1)


def test_no_map_steps_back_and_counting_the_cost_twice_makes_the_argmax_do_so():
    demo, robot, n, m = noisy_pairs(CASES, SIZE, noise=1.0, seed=0)
    shares = {}
    for twice in (False, True):
        matching = dtw.alignment(demo, robot, n, m, MatchConfig(count_cost_twice=twice))
        shares[twice] = steps_back(matching.demo_to_robot.argmax(2), n).float().mean().item()
    assert shares[True] > 10 * shares[False]
    assert shares[True] > 0.2
    found = correspondences(demo, robot, n, m)
    assert len(found) == CASES
    for each in found:  # Correspondence refuses a map that steps back; this is said here again
        assert (np.diff(each.demo_to_robot) >= 0).all()
        assert (np.diff(each.robot_to_demo) >= 0).all()
    raw = dtw.alignment(demo, robot, n, m).demo_to_robot.argmax(2).numpy()
    same = [np.array_equal(each.demo_to_robot, raw[b, : n[b]]) for b, each in enumerate(found)]
    assert np.mean(same) >= 1 - shares[False] - 1e-9  # where the argmax is monotone it is the map


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
def test_the_map_is_the_likeliest_of_all_monotone_ones(n, m, seed):
    rng = np.random.default_rng(seed)
    beta = rng.random((n, m)) ** 4
    beta /= beta.sum(1, keepdims=True)
    maps = [[]]
    for _ in range(n):
        maps = [[*done, j] for done in maps for j in range(done[-1] if done else 0, m)]
    best = max(maps, key=lambda f: sum(np.log(beta[i, j]) for i, j in enumerate(f)))
    assert frame_map(beta).tolist() == best


def test_a_warped_copy_is_found_and_trusted_and_noise_is_not():
    g = torch.Generator().manual_seed(0)
    walk = torch.nn.functional.normalize(torch.randn(60, 16, generator=g).cumsum(0), dim=-1)
    true = np.sort(np.random.default_rng(0).integers(0, 60, 90))
    true[0], true[-1] = 0, 59
    found = correspondence(walk, walk[true])
    assert np.abs(found.robot_to_demo - true).mean() < 0.5
    assert np.abs(true[found.demo_to_robot] - np.arange(60)).mean() < 1.5
    assert found.robot_confidence.mean() > 0.9
    assert found.cost < 1
    noise = correspondence(walk, torch.nn.functional.normalize(torch.randn(90, 16, generator=g), dim=-1))
    assert noise.robot_confidence.mean() < 0.5
    assert noise.cost > 3


def test_a_batch_equals_its_pairs_alone():
    demo, robot, n, m = noisy_pairs(5, 20, noise=0.5, seed=3)
    together = correspondences(demo.double(), robot.double(), n.tolist(), m)
    for b, found in enumerate(together):
        alone = correspondence(demo[b, : n[b]].double(), robot[b, : m[b]].double())
        assert np.array_equal(found.demo_to_robot, alone.demo_to_robot)
        assert np.array_equal(found.robot_to_demo, alone.robot_to_demo)
        np.testing.assert_allclose(found.robot_confidence, alone.robot_confidence, atol=1e-9)
        assert found.cost == pytest.approx(alone.cost)


def test_a_still_start_is_matched_to_the_first_frame():
    walk = torch.nn.functional.normalize(
        torch.randn(30, 16, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    still = torch.cat([walk[:1].expand(20, 16), walk])
    assert correspondence(walk, still).robot_to_demo[:20].max() == 0


def test_embeddings_that_are_not_finite_are_refused():
    demo = torch.rand(3, 4, 2)
    demo[1, 2] = torch.nan
    with pytest.raises(BadInput, match="pair 1"):
        correspondences(demo, torch.rand(3, 5, 2))


def test_cells_of_one_sided_padding():
    keep = cells(None, torch.tensor([1, 3]), torch.Size((2, 2, 3)))
    assert keep is not None
    assert keep.sum((1, 2)).tolist() == [2, 6]
    assert cells(None, None, torch.Size((2, 2, 3))) is None
