"""A hundred thousand chunks made to do harm, and none gets through: held against an oracle that shares no code."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostbot_client import BadLimits, Guard, Limits, PartLimits, arm_limits, load_limits
from hostbot_client.guard import limit
from hostbot_client.limits import limits_from

RATE, H = 16.0, 8
LOW, HIGH = (0.0, -0.35, 0.0), (0.5, 0.35, 0.35)
ARM = {"gripper": (0.0, 0.08), "speed": 0.8, "turn": 3.0, "jump": 0.1, "jump_turn": 0.5, "slack": 0.01}
BIMANUAL = Limits((*arm_limits("left", LOW, HIGH, **ARM), *arm_limits("right", LOW, HIGH, **ARM)), RATE)
EULER = Limits(
    (
        PartLimits("p", "position", 0.8, 0.1, LOW, HIGH),
        PartLimits("r", "euler", 3.0, 0.5),
        PartLimits("q", "quaternion", 3.0, 0.5),
        PartLimits("j", "joint", 2.0, 0.3, (-3.1,), (3.1,), 0.05),
    ),
    RATE,
)


def safe_states(rng, limits, count):
    state = np.zeros((count, limits.dim), np.float32)
    for part, place in limits.slices():
        if part.low:
            state[:, place] = rng.uniform(part.low, part.high, (count, part.width)).astype(np.float32)
        elif part.kind == "rot6d":
            turned, _ = np.linalg.qr(rng.normal(size=(count, 3, 3)))
            state[:, place] = np.concatenate([turned[..., 0], turned[..., 1]], -1)
        elif part.kind == "quaternion":
            drawn = rng.normal(size=(count, 4))
            state[:, place] = drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)
        else:
            state[:, place] = rng.uniform(-1, 1, (count, part.width))
    return np.clip(state, *bounds(limits))


def bounds(limits):
    low, high = np.full(limits.dim, -np.inf), np.full(limits.dim, np.inf)
    for part, place in limits.slices():
        if part.low:
            low[place], high[place] = part.low, part.high
    return low.astype(np.float32), high.astype(np.float32)


def adversarial(rng, limits, state):
    """Gentle chunks around the state, then something nasty in most of them."""
    count = len(state)
    small = rng.normal(scale=0.002, size=(count, H, limits.dim)).cumsum(1)
    chunks = (state[:, None] + small).astype(np.float64)
    nasty = [np.nan, np.inf, -np.inf, 1e30, -1e30, 1e308, 5e-324, 0.0, 10.0, -10.0, 0.6, 1e-8]
    kind = rng.integers(0, 6, count)
    rows, steps, places = np.arange(count), rng.integers(0, H, count), rng.integers(0, limits.dim, count)
    one = kind == 1
    chunks[rows[one], steps[one], places[one]] = rng.choice(nasty, one.sum())
    many = kind == 2
    chunks[many] += rng.normal(scale=10.0 ** rng.uniform(-3, 3), size=chunks[many].shape)
    jump = kind == 3
    chunks[jump] += rng.normal(scale=0.2, size=(jump.sum(), 1, limits.dim))
    chunks[kind == 4] = rng.choice(nasty, (int((kind == 4).sum()), H, limits.dim))
    return chunks


def angle(kind, a, b):
    """The angle between two rotations, by scipy."""
    from scipy.spatial.transform import Rotation

    def read(values):
        values = values.astype(np.float64)
        if kind == "euler":
            return Rotation.from_euler("xyz", values)
        if kind == "quaternion":
            return Rotation.from_quat(values[:, [1, 2, 3, 0]])
        x, y = values[:, :3], values[:, 3:]
        return Rotation.from_matrix(np.stack([x, y, np.cross(x, y)], -1))

    return (read(a).inv() * read(b)).magnitude()


def check(limits, sent, state, num_safe):
    """Every command is finite, sound and in its box; every move is slow; the first is near: or the robot holds."""
    assert sent.dtype == np.float32
    assert np.isfinite(sent).all()
    low, high = bounds(limits)
    assert (sent >= low).all()
    assert (sent <= high).all()
    moving = num_safe > 0
    for part, place in limits.slices():
        values = sent[..., place]
        a, b = values[:, :-1].reshape(-1, part.width), values[:, 1:].reshape(-1, part.width)
        first, here = values[moving, 0], state[moving][:, place]
        if part.kind in ("rot6d", "euler", "quaternion"):
            if part.kind == "rot6d":
                x, y = values[..., :3].astype(float), values[..., 3:].astype(float)
                np.testing.assert_allclose((x * x).sum(-1), 1, atol=1e-5)
                np.testing.assert_allclose((x * y).sum(-1), 0, atol=1e-5)
            step, jump = angle(part.kind, a, b), angle(part.kind, here, first)
        else:
            step = np.linalg.norm(a.astype(float) - b, axis=-1)
            jump = np.linalg.norm(here.astype(float) - first, axis=-1)
        assert (step <= part.speed / RATE + 2e-6).all()
        assert (jump <= part.jump + 2e-6).all()


@pytest.mark.parametrize(
    ("limits", "count"), [(BIMANUAL, 80_000), (EULER, 20_000)], ids=["bimanual", "other kinds"]
)
def test_none_of_a_hundred_thousand_adversarial_chunks_leaves_the_limits(limits, count):
    rng = np.random.default_rng(0)
    whole = held = 0
    for _ in range(count // 10_000):
        state = safe_states(rng, limits, 10_000)
        made = limit(adversarial(rng, limits, state), state, None, limits)
        check(limits, made.actions, state, made.num_safe)
        assert ((made.reason == 0) == (made.num_safe == H)).all()
        rest = made.num_safe == 0
        np.testing.assert_array_equal(made.actions[rest], np.repeat(state[rest, None], H, 1))
        whole, held = whole + (made.num_safe == H).sum(), held + rest.sum()
    assert whole > count / 10, "gentle chunks pass"
    assert held > count / 10, "nasty ones do not"


def gentle(state):
    return np.repeat(state[None], H, 0) + 0.001 * np.arange(H)[:, None] * np.eye(20)[0]


@pytest.fixture
def here():
    return np.tile([0.2, 0.0, 0.1, 1, 0, 0, 0, 1, 0, 0.04], 2).astype(np.float32)


def test_what_is_fine_passes_unchanged(here):
    verdict = Guard(BIMANUAL)(gentle(here), here)
    np.testing.assert_allclose(verdict.actions, gentle(here), atol=1e-7)
    assert (verdict.num_safe, verdict.refusal) == (H, None)


@pytest.mark.parametrize(
    ("step", "place", "value", "reason", "part"),
    [
        (0, 0, np.nan, "not finite", ""),
        (3, 5, np.inf, "not finite", ""),
        (2, 0, 0.7, "out of its box", "left_position"),
        (4, 10, -0.02, "out of its box", "right_position"),
        (5, 1, 0.2, "too fast", "left_position"),
        (0, 11, 0.3, "too far from the robot", "right_position"),
        (6, slice(3, 6), 0.0, "no rotation", "left_rotation"),
        (1, slice(6, 9), [1, 1e-3, 0], "no rotation", "left_rotation"),
        (2, slice(3, 9), [0, 1, 0, -1, 0, 0], "too fast", "left_rotation"),
        (3, 9, 0.2, "out of its box", "left_gripper"),
    ],
)
def test_from_the_first_bad_step_on_the_robot_holds(here, step, place, value, reason, part):
    chunk = gentle(here)
    chunk[step, place] = value
    guard = Guard(BIMANUAL)
    verdict = guard(chunk, here)
    assert verdict.num_safe == step
    assert (verdict.refusal.reason, verdict.refusal.part) == (reason, part)
    np.testing.assert_allclose(verdict.actions[:step], gentle(here)[:step], atol=1e-7)
    np.testing.assert_array_equal(
        verdict.actions[step:],
        np.repeat(verdict.actions[step - 1 : step] if step else here[None], H - step, 0),
    )
    assert list(guard.refused) == [verdict.refusal]


def test_a_little_past_the_box_is_moved_onto_it(here):
    here[0] = 0.499
    chunk = np.repeat(here[None], H, 0)
    chunk[2:, 0] = 0.505
    verdict = Guard(BIMANUAL)(chunk, here)
    assert verdict.num_safe == H
    assert verdict.actions[:, 0].max() <= 0.5


def test_rotations_are_sent_orthonormal(here):
    chunk = gentle(here)
    chunk[:, 3:9] = [2, 0, 0, 0.3, 5, 0]
    np.testing.assert_allclose(
        Guard(BIMANUAL)(chunk, here).actions[:, 3:9], [[1, 0, 0, 0, 1, 0]] * H, atol=1e-7
    )


def test_the_seam_between_chunks_is_as_slow_as_the_rest(here):
    before = here.copy()
    before[0] -= 0.09
    assert Guard(BIMANUAL)(gentle(here), here, before).refusal.reason == "too fast"
    near = here.copy()
    near[0] -= 0.04
    assert Guard(BIMANUAL)(gentle(here), here, near).refusal is None
    stopped = Guard(BIMANUAL)(gentle(here), here, before)
    np.testing.assert_array_equal(stopped.actions, np.repeat(before[None], H, 0))


@pytest.mark.parametrize(
    "chunk",
    [np.zeros((8, 19)), np.zeros(20), np.zeros((0, 20)), np.zeros((2, 8, 20)), "text", None, [[1], [1, 2]],
     np.zeros((8, 20), complex), np.array([["a"] * 20]), np.zeros((8, 20), bool), np.array([[object()] * 20])],
    ids=lambda c: str(getattr(c, "shape", c)),
)  # fmt: skip
def test_what_is_no_chunk_becomes_a_hold(here, chunk):
    verdict = Guard(BIMANUAL)(chunk, here)
    np.testing.assert_array_equal(verdict.actions, here[None])
    assert verdict.num_safe == 0
    assert "the chunk is" in verdict.refusal.reason


@pytest.mark.parametrize("state", [np.full(20, np.nan), np.zeros(3), None, "x"])
def test_without_a_state_there_is_nothing_to_hold(here, state):
    assert Guard(BIMANUAL)(gentle(here), state).actions is None


def test_what_was_refused_is_on_record(tmp_path, here):
    guard = Guard(BIMANUAL, tmp_path / "refused.jsonl", remembered=2)
    for value in (np.nan, 0.9, 1e300):
        chunk = gentle(here)
        chunk[1, 0] = value
        guard(chunk, here)
    lines = [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in lines] == ["not finite", "out of its box", "out of its box"]
    assert lines[1]["amount"] == pytest.approx(0.4, abs=1e-6)
    assert len(guard.refused) == 2


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_limiting_again_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    state = safe_states(rng, BIMANUAL, 4)
    once = limit(adversarial(rng, BIMANUAL, state), state, None, BIMANUAL)
    twice = limit(once.actions, state, None, BIMANUAL)
    np.testing.assert_allclose(twice.actions, once.actions, atol=2e-6)


def test_limits_are_a_file(tmp_path):
    BIMANUAL.save(tmp_path / "limits.json")
    assert load_limits(tmp_path / "limits.json") == BIMANUAL


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.pop("rate_hz"), "rate_hz"),
        (lambda d: d.update(rate_hz=0), "rate above 0"),
        (lambda d: d.update(parts=[]), "need parts"),
        (lambda d: d["parts"][0].update(sped=3), "unknown sped"),
        (lambda d: d["parts"][0].pop("speed"), "speed"),
        (lambda d: d["parts"][0].update(speed=-1), "above 0"),
        (lambda d: d["parts"][0].update(low=[0, 0]), "3 bounds"),
        (lambda d: d["parts"][0].update(low=[9, 9, 9]), "below its high"),
        (lambda d: d["parts"][1].update(kind="angle"), "no kind 'angle'"),
        (lambda d: d["parts"].append(3), "unknown 3"),
    ],
)
def test_limits_that_are_none_are_refused(tmp_path, change, told):
    BIMANUAL.save(tmp_path / "limits.json")
    found = json.loads((tmp_path / "limits.json").read_text())
    change(found)
    with pytest.raises(BadLimits, match=told):
        limits_from(found)
    with pytest.raises(BadLimits, match="holds no limits"):
        load_limits(tmp_path / "nothing.json")


def test_a_server_with_another_action_vector_is_refused():
    parts = [{"name": p.name, "kind": p.kind} for p in BIMANUAL.parts]
    BIMANUAL.check_parts(parts)
    with pytest.raises(BadLimits, match="the server's actions are"):
        BIMANUAL.check_parts(parts[::-1])
