"""One recorded pair, learned by heart on a CPU, is done in closed loop from the pair's start."""

from tests.train.pair import attempt, learn, record

TASK, SEED = "press-red_button", 3


def test_one_pair_learned_by_heart_is_done_in_closed_loop(tmp_path):
    sources = record(TASK, SEED)
    novice = learn(sources, tmp_path / "novice", steps=5)
    assert not attempt(novice, sources, TASK, SEED), "the task is not done by chance"
    policy = learn(sources, tmp_path / "learned", steps=320)
    assert attempt(policy, sources, TASK, SEED)
