"""``hostbot reproduce`` without the work: which commands, in which order, and what is not done twice."""

import itertools
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from hostbot.cli import main
from hostbot.cli.maker import ACTING, PIECES, ROUNDS, Maker
from hostbot.cli.policies import SHIPPED, policy_folder
from hostbot.cli.recipe import Recipe
from hostbot.cli.steps import Steps
from hostbot.types import BadInput


class Ended:
    def __init__(self, code):
        self.code = code

    pid = 2**22 + 7  # beyond any there is

    def wait(self, timeout=None):
        return self.code

    def terminate(self):
        pass


class Commands:
    """Stands in for the processes: notes what they were told and leaves what they would."""

    def __init__(self, fails=()):
        self.told, self.fails = [], fails

    def run(self, command, stdout, stderr, start_new_session=False):
        words = command[command.index("hostbot") + 1 :]
        self.told.append(words)
        stdout.write(b"something went wrong\n" if words[1] in self.fails else b"fine\n")
        if words[1] in self.fails:
            return Ended(2)
        if "--out" in words:
            self._leave(words)
        if words[:2] == ["data", "stats"]:
            self._touch(words[2] + "/meta/hostbot/statistics.json")
        return Ended(0)

    def _leave(self, words):
        out = words[words.index("--out") + 1]
        left = {"vae": "vae/config.json", "match": "policy/policy.json", "policy": "policy/policy.json"}
        if words[1] in left:
            self._touch(f"{out}/{left[words[1]]}")
        if words[:2] == ["train", "samples"]:
            self._touch(f"{out}/store.json")

    def _touch(self, path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("{}")


@pytest.fixture
def commands(monkeypatch):
    def use(kind=Commands, **settings):
        monkeypatch.setattr("hostbot.cli.maker.has_gpu", lambda: True)
        made = kind(**settings)
        monkeypatch.setattr("hostbot.cli.steps.subprocess.Popen", made.run)
        return made

    return use


def test_pieces_come_in_their_order_and_are_not_done_twice(commands, tmp_path, capsys):
    done = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--workers", "3"]) == 0
    learned = [words[1] for words in done.told if words[0] == "train" and words[1] != "samples"]
    assert learned == ["vae", *2 * ["match"], *3 * ["policy"]], (
        "acting fuses its layers while it waits for samples"
    )
    ahead = [words[words.index("--pieces") + 1] for words in done.told if words[0] == "reproduce"]
    assert ahead == ["match", "act", "act", "refine", "polish"], "the next piece, then one's own rounds"
    assert done.told[-1][0] == "eval"
    assert "novel" in done.told[-1]
    again = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--workers", "3"]) == 0
    assert again.told == []


def test_layers_are_fused_beside_the_encoding_for_just_the_run_that_learns(commands, tmp_path):
    done = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "act"]) == 2
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "match"]) == 0
    fused, learned = [words for words in done.told if words[:2] == ["train", "match"]]
    encoded = [words for words in done.told if words[:2] == ["train", "samples"] and "drills" in words[3]]
    assert done.told.index(fused) < done.told.index(encoded[0]) < done.told.index(learned)
    same = (
        "--batch",
        "--shared",
        "--patch",
        "--optimiser",
        "--text-dropout",
        "--compile",
        "--pair",
        "--shift",
    )
    assert all(fused[fused.index(f) + 1] == learned[learned.index(f) + 1] for f in same)
    assert "held-out" in fused[fused.index("--samples") + 1]
    assert "drills" in learned[learned.index("--samples") + 1]
    assert {"--fine", "--channels", "--decoder-width"} <= set(next(w for w in done.told if w[1] == "vae"))


def learned(made):
    """What runs that learn to act were told."""
    return [words for words in made.told if words[:2] == ["train", "policy"] and "--validation" in words]


def samples_of(words):
    return words[words.index("--samples") + 1 : words.index("--vae")]


def test_acting_goes_on_with_drills_where_they_are_and_refining_learns_from_all(commands, tmp_path, capsys):
    made = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--keep-data"]) == 0
    act, refine, polish = pieces = learned(made)
    drills = str(tmp_path / "pieces/match/data/drills/samples")
    assert all(words[words.index("--drills") + 1] == drills for words in pieces)
    assert all("--weights" not in words for words in pieces), "executions of all rounds are drawn alike"
    rounds = tmp_path / "pieces/act/data/rounds"
    assert samples_of(act) == [str(rounds / f"00/data/{folder}/samples") for folder in ("tasks", "acted")]
    assert samples_of(refine) == samples_of(act), "nothing is recorded anew where there is something"
    assert act[act.index("--more") + 1] == str(rounds)
    assert polish[polish.index("--more") + 1] == str(tmp_path / "pieces/polish/data/rounds")
    assert [words[words.index("--stage") + 1] for words in pieces] == ["1", "2", "2"]
    fresh = commands()
    for gone in ("match", "act", "refine", "polish"):
        shutil.rmtree(tmp_path / "pieces" / gone)
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "refine"]) == 0
    (learn,) = learned(fresh)
    assert "--drills" not in learn
    assert "refine is learned without any" in capsys.readouterr().out
    assert [path.split("/pieces/")[1] for path in samples_of(learn)] == [
        f"refine/data/rounds/00/data/{folder}/samples" for folder in ("tasks", "acted")
    ]
    assert not list(tmp_path.glob("pieces/*/data"))


def prepared(tmp_path, piece, minutes="9"):
    """Further rounds, as they are made beside a piece that learns."""
    flags = ["--pieces", piece, "--prepare-only", "--minutes", minutes]
    return main(["reproduce", "--out", str(tmp_path), *flags])


def test_rounds_are_recorded_while_a_piece_learns_and_learned_from_by_the_next(commands, tmp_path):
    made = commands()
    flags = ["--pieces", "see", "match", "act", "--keep-data"]
    assert main(["reproduce", "--out", str(tmp_path), *flags]) == 0
    (beside,) = [w for w in made.told if w[0] == "reproduce" and "act" in w and "--prepare-only" in w][1:]
    assert float(beside[beside.index("--minutes") + 1]) == pytest.approx(9.2, abs=0.1)
    more = commands()
    assert prepared(tmp_path, "act") == 0
    robots = [w for w in more.told if "record" in w and "robot" in w and "--balance" in w]
    led = [w for w in more.told if "--led" in w]
    assert len(robots) + len(led) == ROUNDS - 1
    assert len(led) == sum(n % Recipe().led_every == Recipe().led_every // 2 for n in range(ROUNDS))
    seeds = {w[w.index("--first-seed") + 1] for w in robots}
    assert len(seeds) == len(robots), "every round has scenes of its own"
    assert all(w[w.index("--episodes-per-task") + 1] == str(Recipe().robot) for w in robots)
    again = commands()
    assert prepared(tmp_path, "act") == 0
    assert again.told == []
    later = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "refine", "--keep-data"]) == 0
    (refine,) = learned(later)
    assert len(samples_of(refine)) == 2 * (1 + len(robots)) + len(led)


def test_a_run_that_is_gone_on_with_is_told_the_samples_it_began_with(commands, tmp_path):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "--keep-data"]) == 0
    stopped = commands(fails=("policy",))
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--keep-data"]) == 2
    (tmp_path / "act/checkpoints/step-00000000").mkdir(parents=True)
    commands()
    assert prepared(tmp_path, "act") == 0
    later = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--keep-data"]) == 0
    (before,), (after,) = learned(stopped), learned(later)
    assert samples_of(after) == samples_of(before)
    assert "--resume" in after


def test_a_round_that_fails_is_told_and_the_others_are_made(commands, tmp_path, capsys):
    class Fails(Commands):
        def run(self, command, stdout, stderr, start_new_session=False):
            self.fails = ("record",) if any("rounds/03" in word for word in command) else ()
            return super().run(command, stdout, stderr, start_new_session)

    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "--keep-data"]) == 0
    made = commands(kind=Fails)
    assert prepared(tmp_path, "act") == 0
    assert "round 3 is left as it is" in " ".join(capsys.readouterr().out.split())
    encoded = {w[w.index("--out") + 1].split("/")[-4] for w in made.told if w[:2] == ["train", "samples"]}
    assert encoded == {f"{n:02d}" for n in range(ROUNDS) if n != 3} | {"act"}  # and what is held out
    later = commands()
    assert prepared(tmp_path, "act") == 0
    assert {words[1] for words in later.told} == {"record", "pairs", "samples"}
    assert all("rounds/03" in " ".join(words) for words in later.told)


def test_tasks_are_encoded_while_drills_are_still_recorded(commands, tmp_path):
    made = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "act", "--keep-data"]) == 0
    of_act = [" ".join(words) for words in made.told if "pieces/act/data" in " ".join(words)]
    order = [
        next(n for n, words in enumerate(of_act) if words.startswith(verb) and f"data/{folder}" in words)
        for verb, folder in (
            ("sim record", "tasks"),
            ("train samples", "tasks"),
            ("sim record", "acted"),
            ("train samples", "acted"),
        )
    ]
    assert order == sorted(order)
    assert sum(words.startswith("train samples") and "data/tasks" in words for words in of_act) == 1
    learned = [words for words in made.told if words[:2] == ["train", "policy"]][-1]
    assert learned[learned.index("--shift") + 1] == str(Recipe().shift)


def test_experts_go_on_where_the_last_policy_that_acts_has_led(commands, tmp_path):
    commands()
    pieces = ["see", "match"]
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", *pieces, "--keep-data"]) == 0
    none = commands()
    assert prepared(tmp_path, "act") == 0
    assert not [words for words in none.told if words[0] == "eval"], "nothing acts yet"
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--keep-data"]) == 0
    (tmp_path / "act/policy/policy.json").write_text('{"whose": "act"}')
    made = commands()
    assert prepared(tmp_path, "refine") == 0
    lead, *_ = [words for words in made.told if words[0] == "eval"]
    leader = Path(lead[lead.index("--policy") + 1])
    assert json.loads((leader / "policy.json").read_text()) == {"whose": "act"}
    assert tmp_path / "act" not in leader.parents, "a copy: the one that learns is replaced meanwhile"
    assert lead[lead.index("--suite") + 1] == "train"
    assert "--keep-actions" in lead
    record, *_ = [words for words in made.told if "--led" in words]
    assert record[record.index("--led") + 1] == lead[lead.index("--out") + 1]
    assert "--stray" not in record
    seed = int(lead[lead.index("--first-seed") + 1])
    assert 10_000 + 20_000 * PIECES.index("refine") <= seed < 10_000 + 20_000 * (PIECES.index("refine") + 1)


def test_what_was_begun_with_a_leader_is_gone_on_with_by_the_same(commands, tmp_path):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "act", "--keep-data"]) == 0
    (tmp_path / "act/policy/policy.json").write_text('{"whose": "first"}')
    commands(fails=("--policy",))  # evaluations that lead are stopped
    assert prepared(tmp_path, "act") == 0
    (tmp_path / "act/policy/policy.json").write_text('{"whose": "second"}')
    later = commands()
    assert prepared(tmp_path, "act") == 0
    leaders = [words[words.index("--policy") + 1] for words in later.told if words[0] == "eval"]
    assert leaders
    assert all(json.loads(Path(one, "policy.json").read_text()) == {"whose": "first"} for one in leaders)


def test_a_command_that_runs_is_not_begun_again_and_is_waited_for(commands, tmp_path):
    made = commands()
    steps = Steps(folder=tmp_path, minutes=1.0)
    for _ in range(2):
        steps.begin("one", "sim", "record")
    assert len(made.told) == 1
    assert "one" not in steps.commands
    steps.end("one")
    steps.begin("one", "sim", "record")
    assert len(made.told) == 1
    assert "one" in steps.commands


def test_what_is_recorded_ahead_is_what_the_piece_would_record(commands, tmp_path):
    ahead = commands()
    assert (
        main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--prepare-only", "--workers", "3"])
        == 0
    )
    assert {words[1] for words in ahead.told} == {"record"}
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match"]) == 0
    later = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--workers", "3"]) == 0
    assert not [words for words in later.told if words[1] == "record"]


def test_what_runs_beside_is_stopped_when_a_step_fails(commands, tmp_path, monkeypatch):
    stopped = []
    monkeypatch.setattr(Ended, "terminate", lambda self: stopped.append(self))
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see"]) == 0
    commands(fails=("record",))
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "match"]) == 2
    assert stopped == []

    class Fails(Commands):
        def run(self, command, stdout, stderr, start_new_session=False):
            self.fails = ("samples",) if any("data/drills" in word for word in command) else ()
            return super().run(command, stdout, stderr, start_new_session)

    commands(kind=Fails)
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "match"]) == 2
    assert len(stopped) == 1


def test_no_two_rounds_pieces_or_seeds_share_a_scene(tmp_path):
    recipe = Recipe()
    steps = Steps(tmp_path, 1.0)

    def first(piece, seed):
        return Maker(out=tmp_path, piece=piece, steps=steps, recipe=recipe, workers=1, seed=seed)

    makers = [
        first(piece, seed) for piece in PIECES for seed in range(8) if piece != "try"
    ]  # records nothing
    most = max(recipe.seen, recipe.drills, recipe.shown)
    firsts = sorted(maker.first_seed for maker in makers)
    assert all(b - a >= most for a, b in itertools.pairwise(firsts))
    assert firsts[-1] + most < 900_000
    rounds = [m.of_round(n).first_seed for m in makers if m.piece in ACTING for n in range(ROUNDS)]
    most = max(recipe.robot, recipe.human, recipe.acted, recipe.led)
    assert all(b - a >= most for a, b in itertools.pairwise(sorted(rounds)))
    assert max(rounds) + most <= 900_000
    assert main(["reproduce", "--out", str(tmp_path), "--seed", "8"]) == 2


def test_the_policy_goes_on_from_the_last_that_there_is(commands, tmp_path, capsys):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act"]) == 2
    assert "run the piece see first" in capsys.readouterr().err
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match"]) == 0
    refined = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "refine"]) == 0
    policy = next(words for words in refined.told if words[:2] == ["train", "policy"] and "--from" in words)
    assert policy[policy.index("--from") + 1] == str(tmp_path / "match")


def test_a_rehearsal_does_not_pass_for_the_real_thing(commands, tmp_path, capsys):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--small", "--pieces", "see"]) == 0
    real = commands()
    assert main(["reproduce", "--out", str(tmp_path)]) == 2
    assert "use another --out" in capsys.readouterr().err
    assert main(["reproduce", "--out", str(tmp_path), "--small", "--seed", "1"]) == 2
    assert real.told == []


def test_a_step_that_fails_is_told_with_the_end_of_its_log_and_tried_again(commands, tmp_path, capsys):
    commands(fails=("vae",))
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "--keep-data"]) == 2
    assert "something went wrong" in capsys.readouterr().err
    kept = json.loads((tmp_path / "pieces/see/steps.json").read_text())
    assert list(kept) == ["record"]
    again = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see"]) == 0
    assert [words[1] for words in again.told] == ["vae"]


def test_a_piece_without_time_says_so(tmp_path):
    steps = Steps(tmp_path, 0.01)
    with pytest.raises(BadInput, match="none of 0.01 is left"):
        steps.left()


@pytest.mark.parametrize("deaf", ["nobody", "both", "child"])
def test_whatever_is_recorded_beside_ends_with_the_piece(tmp_path, monkeypatch, deaf):
    """A group of real processes, one of which started another; also where Ctrl-C is ignored, as behind a script's &, or
    by the one that was started, as a server of forks does."""
    program, noted = tmp_path / "program", tmp_path / "pids"
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    hear, child = (ignore if deaf in whom else "pass" for whom in (("both",), ("both", "child")))
    program.write_text(
        f"#!{sys.executable}\nimport os, pathlib, signal, subprocess, sys, time\n{hear}\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import signal, time; {child}; time.sleep(60)'])\n"
        "time.sleep(0.5)\n"
        f"pathlib.Path({str(noted)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(60)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("hostbot.cli.steps.sys.executable", str(program))
    monkeypatch.setattr("hostbot.cli.steps._PATIENCE", 1.0)
    steps = Steps(tmp_path / "piece", 1.0)
    steps.aside("record-for-later", "sim", "record")
    until = time.monotonic() + 20
    while not (noted.exists() and len(noted.read_text().split()) == 2) and time.monotonic() < until:
        time.sleep(0.05)
    pids = [int(pid) for pid in noted.read_text().split()]
    steps.drop()
    until = time.monotonic() + 5
    while any(map(_runs, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(_runs, pids))


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_piece_that_is_told_to_end_ends_its_steps(tmp_path, monkeypatch):
    ended = []

    class Waits(Ended):
        def wait(self, timeout=None):
            if not ended:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            return self.code

        def terminate(self):
            ended.append(self)

    monkeypatch.setattr("hostbot.cli.steps.subprocess.Popen", lambda *words, **more: Waits(0))
    before = signal.getsignal(signal.SIGTERM)
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see"]) == 130
    assert len(ended) == 1
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_piece_that_learns_next_is_recorded_and_encoded_ahead(commands, tmp_path):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match"]) == 0
    ahead = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--prepare-only"]) == 0
    assert not [words for words in ahead.told if "--from" in words]
    encoded = [words[words.index("--out") + 1] for words in ahead.told if words[:2] == ["train", "samples"]]
    assert "held-out" in encoded[0]
    assert "rounds/00" in encoded[1]
    later = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act"]) == 0
    assert [words[0] for words in later.told] == ["reproduce", "train"]


def test_nothing_is_encoded_with_a_vae_that_still_learns(commands, tmp_path, capsys):
    commands(fails=("vae",))
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "--keep-data"]) == 2
    (tmp_path / "see/vae").mkdir(parents=True)  # what Ctrl-C leaves
    ahead = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "match", "--prepare-only"]) == 0
    assert {words[1] for words in ahead.told} == {"record"}
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "match"]) == 2
    assert "run the piece see first" in capsys.readouterr().err


def test_every_piece_has_its_minutes(commands, tmp_path, capsys):
    done = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "--minutes", "3", "5"]) == 0
    minutes = {
        words[1]: float(words[words.index("--minutes") + 1])
        for words in done.told
        if "--minutes" in words and words[0] == "train"
    }
    assert minutes == {"vae": pytest.approx(2.7, abs=0.1), "match": pytest.approx(4.7, abs=0.1)}
    assert main(["reproduce", "--out", str(tmp_path), "--minutes", "3", "5"]) == 2
    assert "one for each of see, match, act, refine, polish, try; got 2" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["reproduce", "--out", str(tmp_path), "--pieces"]) == 2


def test_a_policy_can_be_gone_on_from(commands, tmp_path, capsys):
    given = tmp_path / "given"
    (given / "vae").mkdir(parents=True)
    (given / "vae/config.json").write_text("{}")
    shutil.copyfile(policy_folder(SHIPPED) / "policy.json", given / "policy.json")
    made = commands()
    flags = ["reproduce", "--out", str(tmp_path / "r"), "--from", str(given)]
    assert main([*flags, "--pieces", "refine", "polish"]) == 0
    refine, polish = [w[w.index("--from") + 1] for w in made.told if "--from" in w and w[0] == "train"]
    assert (refine, polish) == (str(tmp_path / "r/given"), str(tmp_path / "r/refine"))
    ahead = [words for words in made.told if words[0] == "reproduce"]
    assert [words[words.index("--from") + 1] for words in ahead] == 2 * [str(given)]
    before = json.loads((given / "policy.json").read_text())["statistics"]
    after = json.loads((tmp_path / "r/statistics.json").read_text())
    for name, feature in after["features"].items():
        assert feature["min"][3:9] == feature["min"][13:19] == [-1.0] * 6, "a hand may lean that never did"
        assert feature["max"][3:9] == feature["max"][13:19] == [1.0] * 6
        for bound in ("min", "max", "q01", "q99"):
            feature[bound][3:9], feature[bound][13:19] = (
                before["features"][name][bound][k : k + 6] for k in (3, 13)
            )
    assert after == before, "and nothing else is changed"
    assert not [words for words in made.told if words[1] == "stats"]
    everything = commands()
    assert main([*flags, "--out", str(tmp_path / "all")]) == 0
    assert "see: left out" in capsys.readouterr().out
    assert not [words for words in everything.told if words[1] == "vae"]
    assert main(["reproduce", "--out", str(tmp_path / "r")]) == 2
    assert "--from" in capsys.readouterr().err
    assert main(["reproduce", "--out", str(tmp_path / "s"), "--from", str(tmp_path)]) == 2
    assert "no policy with its VAE" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "s").exists()


def test_what_a_piece_still_needs_is_not_removed_by_another(commands, tmp_path):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "--keep-data"]) == 0
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "act", "--prepare-only"]) == 0
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "refine"]) == 0
    assert (tmp_path / "pieces/act/data/rounds/00/data/tasks/samples").exists()  # it has not learned yet
    assert not (tmp_path / "pieces/refine/data").exists()
    assert not (tmp_path / "pieces/match/data").exists()


def test_samples_that_are_not_whole_are_left_alone(commands, tmp_path):
    class HalfWay(Commands):
        def run(self, command, stdout, stderr, start_new_session=False):
            self.fails = ("samples",) if any("00/data/acted" in word for word in command) else ()
            return super().run(command, stdout, stderr, start_new_session)

    commands(kind=HalfWay)
    flags = ["reproduce", "--out", str(tmp_path), "--keep-data"]
    assert main([*flags, "--pieces", "see", "match", "act"]) == 2
    rounds = tmp_path / "pieces/act/data/rounds"
    (rounds / "00/data/acted/samples").mkdir(parents=True, exist_ok=True)
    later = commands()
    assert main([*flags, "--pieces", "refine"]) == 0
    (learn,) = learned(later)
    assert samples_of(learn) == [str(rounds / "00/data/tasks/samples")]
    assert "--drills" in learn


def test_every_policy_is_tried(commands, tmp_path):
    commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "see", "match", "act", "try"]) == 0
    later = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "refine", "try"]) == 0
    (tried,) = [words for words in later.told if words[0] == "eval" and "--keep-actions" not in words]
    assert tried[tried.index("--policy") + 1] == str(tmp_path / "refine/policy")
    again = commands()
    assert main(["reproduce", "--out", str(tmp_path), "--pieces", "try"]) == 0
    assert again.told == []
