"""Samples: each latent is of the frames the equations name, draws depend on (seed, step) alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from hostbot import couple
from hostbot.data.batches import DrawConfig, Mixture, Pool, generator_for, moved
from hostbot.data.fill import fill, pieces_of
from hostbot.data.plan import _drawn
from hostbot.data.samples import Store
from hostbot.data.speed import SpeedConfig
from hostbot.data.takes import TakeConfig, crop_point, make_take
from hostbot.types import BadInput, Camera, DataError
from tests.data.toy import ABOVE, COUPLE, ROBOT, SIZE, make_plan, make_store, sample_config, sources, truth

TEXT = torch.arange(2 * 3 * 4).reshape(2, 3, 4).float()
EVERY = DrawConfig(micro=8, demo_dropout=0.0, one_view=0.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("samples") / "store")


def pool_of(store, resident=True):
    return Pool(store, TEXT[: len(store.info.texts)], torch.device("cpu"), resident)


def test_every_row_is_the_equation_written_out(store):
    bodies = sources()
    plan, chosen = make_plan(bodies, sample_config())
    label = truth(bodies)
    rows = store.rows
    expected = {}
    for pair in chosen:
        maps = label(pair)
        for t, q in enumerate(maps.robot_to_demo):
            ahead = [maps.demo_to_robot[min(q + i, len(maps.demo_to_robot) - 1)] for i in (1, 2, 3, 4)]
            expected[(pair.robot, pair.demo, t)] = (q, [t, *ahead])
    assert len(rows) == len(expected) == len(plan.rows)
    for r in range(len(rows)):
        demo = int(store.takes.episode[rows.take[r]])
        q, frames = expected[(int(rows.episode[r]), demo, int(rows.frames[r, 0]))]
        assert rows.q[r] == q
        assert rows.frames[r].tolist() == frames
        greys = 3 * int(rows.episode[r]) + np.array(frames)
        for view in range(3):
            assert store.clip[r, 0, 0, view, 0] == greys[0] + view
            assert store.clip[r, 1, 0, view, 0] == greys[1:].mean() + view


def test_a_demonstration_lies_in_one_piece_on_its_grid(store):
    for a in range(len(store.takes.episode)):
        length, num = int(store.takes.length[a]), int(store.takes.latents[a])
        grid = couple.grid_frames(length, COUPLE)
        greys = 3 * int(store.takes.episode[a]) + grid
        for f in range(num):
            mean = greys[0] if f == 0 else greys[4 * f - 3 : 4 * f + 1].mean()
            assert store.demo[store.takes.first[a] + f, 0, 0, 0] == mean


def test_a_human_demonstration_has_one_view_and_zeros_elsewhere(tmp_path):
    made = make_store(tmp_path / "s", demo_body="human")
    assert made.takes.present.tolist() == [[False, False, True]] * len(made.takes.episode)
    assert (made.demo[:, :, :2] == 0).all()
    assert (made.demo[1:, 0, 2] > 0).all()
    batch = pool_of(made).draw(EVERY, generator_for(0, 0, 0))
    assert batch.views == (2,)


def test_actions_are_relative_and_normalised_and_come_back(store):
    from hostbot.data.normalize import NormalizeConfig, Normalizer
    from hostbot.data.stats import RELATIVE, STATE, StatsConfig, compute_statistics
    from hostbot.geometry import to_absolute

    bodies = sources()
    statistics = compute_statistics(bodies["robot"], StatsConfig(horizon=4, clean=None), embodiment=ROBOT)
    scale = {n: Normalizer.from_stats(statistics.features[n], NormalizeConfig()) for n in (RELATIVE, STATE)}
    rows = store.rows
    for r in (0, len(rows) // 2, len(rows) - 1):
        data = bodies["robot"].rows(int(rows.episode[r]), ["observation.state", "action"])
        state = scale[STATE].denormalize(rows.state[r].astype(np.float64))
        assert state == pytest.approx(data["observation.state"][rows.frames[r, 0]], abs=1e-5)
        actions = to_absolute(scale[RELATIVE].denormalize(rows.action[r].astype(np.float64)), state, ROBOT)
        # The seen frames after 1, 2, 3 steps are where actions 1, 2, 3 are taken.
        assert actions[1:] == pytest.approx(data["action"][rows.frames[r, 1:4]], abs=1e-4)


def test_a_batch_holds_what_its_rows_say(store):
    for resident in (True, False):
        batch = pool_of(store, resident).draw(EVERY, generator_for(3, 0, 0))
        for b, row in enumerate(batch.rows.tolist()):
            assert torch.equal(batch.observation[b, :, 0], torch.from_numpy(np.array(store.clip[row, 0])))
            assert torch.equal(batch.future[b, :, 0], torch.from_numpy(np.array(store.clip[row, 1])))
            assert torch.equal(batch.text[b], TEXT[store.rows.text[row]])
            assert torch.equal(batch.action[b], torch.from_numpy(store.rows.action[row]))
            # p and the window agree: the demo frame under p is the row's q.
            take, q = int(store.rows.take[row]), int(store.rows.q[row])
            f0 = (q - float(batch.p[b] + 1) / 2 * COUPLE.window) / COUPLE.unit
            assert f0 == pytest.approx(round(f0), abs=1e-4)
            first = int(store.takes.first[take]) + round(f0)
            window = np.array(store.demo[first : first + COUPLE.latents])
            assert torch.equal(batch.demo[b], torch.from_numpy(window).transpose(0, 1))


def test_samples_that_share_a_window_lie_in_it(store):
    config = replace(EVERY, micro=12, shared=4)
    for step in range(20):
        batch = pool_of(store).draw(config, generator_for(0, step, 0))
        assert batch.demo.shape[0] == 3
        takes = store.rows.take[batch.rows.numpy()].reshape(3, 4)
        assert (takes == takes[:, :1]).all()
        assert ((batch.p >= -1) & (batch.p <= 1)).all()


def test_latents_are_moved_each_view_by_itself_and_edges_drawn_out():
    latents = torch.arange(2 * 3 * 2 * 8 * 5.0).reshape(2, 3, 2, 8, 5)  # two views of four rows
    by = torch.tensor([[2, -1], [-4, 3]])
    found = moved(latents, by, 2)
    for b, view, y, x in itertools.product(range(2), range(2), range(4), range(5)):
        from_y, from_x = min(max(y - int(by[b, 1]), 0), 3), min(max(x - int(by[b, 0]), 0), 4)
        assert torch.equal(found[b, :, :, 4 * view + y, x], latents[b, :, :, 4 * view + from_y, from_x])


def test_pictures_are_moved_with_what_is_pointed_at(tmp_path, monkeypatch):
    """What a robot sees and what follows by as much as its point, the demonstration by itself, actions not at all."""
    store, calls = make_store(tmp_path / "store", cameras=(ABOVE,)), []

    def noted(latents, by, num_views):
        calls.append((latents, by))
        return latents + 1

    monkeypatch.setattr("hostbot.data.batches.moved", noted)
    pool = pool_of(store)
    monkeypatch.setattr(pool, "_side", 4)
    config, (height, width) = replace(EVERY, micro=8, shared=2, shift=2), store.clip.shape[-2:]
    apart, gone, shifts = 0, 0, set()
    for step in range(30):
        calls.clear()
        plain = pool.draw(replace(config, shift=0), generator_for(0, step, 0))
        batch = pool.draw(config, generator_for(0, step, 0))
        (seen, own), (follows, with_it), (shown, theirs) = calls
        assert torch.equal(seen, plain.observation)
        assert torch.equal(follows, plain.future)
        assert torch.equal(shown, plain.demo)
        assert all(torch.equal(b, p + 1) for b, p in ((batch.observation, seen), (batch.demo, shown)))
        assert torch.equal(own, with_it)
        side = torch.tensor([width, height // store.rows.point.shape[1]])
        assert torch.allclose(batch.point, plain.point + (own / side)[:, None])
        inside = ((batch.point >= 0) & (batch.point < 1)).all(-1)
        assert torch.equal(batch.seen, plain.seen & inside)
        assert torch.equal(batch.action, plain.action)
        apart += int((own[::2] != theirs).any())
        gone += int((plain.seen & ~inside).sum())
        shifts |= {tuple(by) for by in [*own.tolist(), *theirs.tolist()]}
    assert apart > 25
    assert gone > 0
    assert shifts == set(itertools.product(range(-2, 3), repeat=2))


def test_pictures_are_not_moved_out_of_sight(store):
    with pytest.raises(BadInput, match="0 latents or more"):
        replace(EVERY, shift=-1)
    with pytest.raises(BadInput, match="half of it at most"):
        pool_of(store).draw(replace(EVERY, shift=99), generator_for(0, 0, 0))


def test_robots_are_exchanged_among_those_of_one_instruction(tmp_path):
    """Any robot with any demonstration of its task, also where they were not planned together; p is the demo's."""
    config = sample_config(states=1, demos=1)
    bodies = sources(lengths=(20, 26, 31, 17, 22, 24), human=(40, 28, 33, 36))
    made = make_store(tmp_path / "s", bodies, config, demo_body="human")
    rows, takes = made.rows, made.takes
    pool, drawn, anew = pool_of(made), set(), 0
    for step in range(200):
        batch = pool.draw(replace(EVERY, micro=4, shared=2, exchange=True), generator_for(0, step, 0))
        for b, row in enumerate(batch.rows.tolist()):
            assert torch.equal(batch.observation[b, :, 0], torch.from_numpy(np.array(made.clip[row, 0])))
            assert torch.equal(batch.point[b], torch.from_numpy(rows.point[row]))
            fits = []
            for lead in np.flatnonzero(rows.text == rows.text[row]):
                f0 = (int(rows.q[lead]) - float(batch.p[b] + 1) / 2 * COUPLE.window) / COUPLE.unit
                first = int(takes.first[rows.take[lead]]) + round(f0)
                window = torch.from_numpy(np.array(made.demo[first : first + COUPLE.latents]))
                if abs(f0 - round(f0)) < 1e-4 and torch.equal(batch.demo[b // 2], window.transpose(0, 1)):
                    fits.append(rows.take[lead])
            assert fits
            drawn.add(row)
            anew += rows.take[row] not in fits
    assert drawn == set(range(6))
    assert anew > 50


def test_robots_of_several_states_are_not_exchanged(store):
    with pytest.raises(BadInput, match="--states 1"):
        pool_of(store).draw(replace(EVERY, exchange=True), generator_for(0, 0, 0))


def test_the_same_step_draws_the_same_and_another_draws_another(store):
    mixture = Mixture(pools=[pool_of(store)], weights=[1.0])
    config = replace(EVERY, demo_dropout=0.5, one_view=0.5)
    one, again = (mixture.draw(config, 7, 5, 2) for _ in range(2))
    assert torch.equal(one.rows, again.rows)
    assert torch.equal(one.p, again.p)
    assert (one.demo is None) == (again.demo is None)
    others = [mixture.draw(config, *key) for key in ((7, 5, 3), (7, 6, 2), (8, 5, 2))]
    assert all(not torch.equal(one.rows, other.rows) for other in others)


def test_dropout_and_decision_points_come_as_often_as_said(store):
    pool = pool_of(store)
    config = DrawConfig(micro=16, demo_dropout=0.5, one_view=0.4, decisions=0.6, text_dropout=0.25)
    batches = [pool.draw(config, generator_for(1, step, 0)) for step in range(400)]
    with_demo = [b for b in batches if b.demo is not None]
    share = store.rows.decision.mean()
    assert len(with_demo) / 400 == pytest.approx(0.5, abs=0.08)
    assert np.mean([b.views is not None for b in with_demo]) == pytest.approx(0.4, abs=0.1)
    silent = [bool((b.text == 0).all()) for b in with_demo]
    assert np.mean(silent) == pytest.approx(0.25, abs=0.08)
    assert not any(bool((b.text == 0).all()) for b in batches if b.demo is None)
    found = torch.cat([b.decision for b in batches]).float().mean()
    assert float(found) == pytest.approx(0.6 + 0.4 * share, abs=0.03)


def test_some_batches_are_told_of_other_tasks_and_those_of_a_window_of_the_same(store):
    pool = pool_of(store)
    config = DrawConfig(micro=16, shared=4, demo_dropout=0.3, text_dropout=0.2, misled=0.3)
    batches = [pool.draw(config, generator_for(1, step, 0)) for step in range(300)]
    plain = [pool.draw(replace(config, misled=0.0), generator_for(1, step, 0)) for step in range(300)]
    assert all(torch.equal(one.rows, other.rows) for one, other in zip(batches, plain, strict=True))
    wrong = [not torch.equal(one.text, other.text) for one, other in zip(batches, plain, strict=True)]
    assert not any(wrong[k] for k in range(300) if batches[k].demo is None), (
        "without a video words are all there is"
    )
    shown = [wrong[k] for k in range(300) if batches[k].demo is not None]
    assert np.mean(shown) == pytest.approx(0.3, abs=0.08)
    for k in np.flatnonzero(wrong):
        by_window = batches[k].text.unflatten(0, (-1, 4))
        assert torch.equal(by_window, by_window[:, :1].expand_as(by_window))
    with pytest.raises(BadInput, match="0 to 1"):
        replace(config, misled=0.9)


def test_takes_after_the_first_have_their_own_speed_and_colours(tmp_path):
    bodies = sources()
    config = TakeConfig(clean=None, speed=SpeedConfig(low=2.0, high=2.0))
    plain, fast = (make_take(bodies["robot"], "robot", 1, v, config) for v in (0, 1))
    assert plain.frames.tolist() == list(range(26))
    assert plain.augmentation is None
    assert len(fast) == 13  # 25 steps at twice the speed are 12.5
    assert fast.frames[-1] == 25
    assert fast.augmentation is not None
    made = make_store(
        tmp_path / "s", config=sample_config(demo_takes=3, robot_takes=3, take=TakeConfig(clean=None))
    )
    assert len(set(made.takes.version.tolist())) > 1
    assert len(set(made.rows.version.tolist())) > 1


def test_a_crop_moves_the_point(tmp_path):
    bodies = sources()
    take = make_take(bodies["robot"], "robot", 0, 1, TakeConfig(clean=None))
    top, left, side = take.augmentation.crop
    at, inside = crop_point(
        np.array([[left + side / 2, top + side / 2], [left - 0.1, top]]), take, (1000, 1000)
    )
    assert at[0] == pytest.approx([0.5, 0.5], abs=2e-3)
    assert inside.tolist() == [True, False]


def test_pointing_targets_are_projected_into_the_views(tmp_path):
    flat = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    camera = Camera(view="third_person", position=(0.0, 0.0, 2.0), rotation=flat, fov_y=90.0)
    bodies = sources()
    plan, _ = make_plan(bodies, sample_config(), cameras=(camera,))
    rows = plan.rows
    assert not rows.seen[:, :2].any()
    assert rows.seen[:, 2].any()
    for r in np.flatnonzero(rows.seen[:, 2])[::17]:
        state = bodies["robot"].rows(int(rows.episode[r]), ["observation.state"])["observation.state"]
        moment = next(
            e.frame for e in bodies["robot"].events(int(rows.episode[r])) if e.frame > rows.frames[r, 0]
        )
        hands = [state[moment, :3], state[moment, 10:13]]
        places = [[0.5 + h[0] / (2 - h[2]) / 2, 0.5 - h[1] / (2 - h[2]) / 2] for h in hands]
        assert min(np.abs(rows.point[r, 2] - p).max() for p in places) < 1e-5


def test_an_interrupted_filling_goes_on_and_gives_the_same(tmp_path, store):
    bodies, config = sources(), sample_config()
    plan, _ = make_plan(bodies, config)
    pieces = pieces_of(plan, 16)
    from tests.data.toy import averages

    half = make_store(tmp_path / "half", filled=False)
    with pytest.raises(DataError, match="not complete"):
        half.whole()
    work = fill(half, pieces, bodies, averages)
    for _ in range(3):
        next(work)
    work.close()
    calls = []
    again = make_store(tmp_path / "half", encode=lambda f: calls.append(len(f)) or averages(f))
    assert len(calls) == len(pieces) - 3
    assert np.array_equal(again.demo, store.demo)
    assert np.array_equal(again.clip, store.clip)


def test_decoding_in_other_processes_gives_the_same(tmp_path, store):
    bodies = sources()
    plan, _ = make_plan(bodies, sample_config())
    from tests.data.toy import averages

    other = make_store(tmp_path / "s", filled=False)
    list(fill(other, pieces_of(plan, 16), bodies, averages, workers=1, shard=(0, 2)))
    list(fill(other, pieces_of(plan, 16), bodies, averages, shard=(1, 2)))
    assert np.array_equal(other.whole().clip, store.clip)


def test_a_store_is_refused_for_other_data_or_when_damaged(tmp_path):
    make_store(tmp_path / "s", filled=False)
    with pytest.raises(DataError, match="other settings"):
        make_store(tmp_path / "s", config=sample_config(seed=1))
    with pytest.raises(DataError, match="hostbot train samples"):
        Store(tmp_path / "nothing")
    plan = tmp_path / "s" / "plan.safetensors"
    plan.write_bytes(plan.read_bytes()[:100])
    with pytest.raises(DataError, match="cannot be read"):
        Store(tmp_path / "s")


def test_a_label_of_another_length_is_refused():
    bodies = sources()
    from hostbot.data.plan import Planner
    from hostbot.data.stats import StatsConfig, compute_statistics

    statistics = compute_statistics(bodies["robot"], StatsConfig(horizon=4, clean=None), embodiment=ROBOT)
    _, chosen = make_plan(bodies, sample_config())
    planner = Planner(bodies, statistics, sample_config())
    with pytest.raises(DataError, match="align these datasets again"):
        planner.plan(chosen, lambda pair: couple.clock_maps(5, 6))
    with pytest.raises(DataError, match="nothing to train on"):
        planner.plan(chosen, lambda pair: None)


def test_wrong_draws_are_refused(store):
    with pytest.raises(BadInput, match="multiple"):
        DrawConfig(micro=10, shared=4)
    with pytest.raises(BadInput, match="weights"):
        Mixture(pools=[pool_of(store)], weights=[])
    assert SIZE == (4, 4)


def test_states_that_are_kept_are_decision_points_as_often_as_asked():
    config = sample_config(states=8)
    decision = np.zeros(40, bool)
    decision[[0, 1, 2, 20, 21, 22, 23]] = True
    for share, least, most in ((0.0, 0, 0), (0.5, 4, 4), (1.0, 7, 7)):
        drawn = _drawn(decision, np.ones(40, bool), replace(config, decisive=share), np.random.default_rng(0))
        assert len(set(drawn.tolist())) == 8
        assert np.array_equal(drawn, np.sort(drawn))
        assert least <= int(decision[drawn].sum()) <= most
    every, rng = np.ones(40, bool), np.random.default_rng(0)
    assert decision[_drawn(decision, every, replace(config, states=36, decisive=0.0), rng)].sum() == 3
    assert np.array_equal(_drawn(decision, every, replace(config, states=None), rng), np.arange(40))
    some = np.arange(40) >= 20
    assert _drawn(decision, some, config, rng).min() >= 20
    assert np.array_equal(_drawn(decision, some, replace(config, states=30), rng), np.arange(20, 40))
