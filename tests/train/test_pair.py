"""One recorded pair, learned by heart on a CPU, is done in closed loop from the pair's start."""

from tests.train.pair import attempt, learn, record

TASK, SEED, NOISES = "pick-red_book", 3, range(6)


def test_one_pair_learned_by_heart_is_done_in_closed_loop(tmp_path):
    """A minute of training leaves a few millimetres of error, so not every draw of noise must succeed."""
    sources = record(TASK, SEED)
    novice = learn(sources, tmp_path / "novice", steps=5)
    assert not any(attempt(novice, sources, TASK, SEED, n) for n in NOISES), "not done by chance"
    policy = learn(sources, tmp_path / "learned", steps=480)
    done = [attempt(policy, sources, TASK, SEED, n) for n in NOISES]
    assert sum(done) >= 3, done
