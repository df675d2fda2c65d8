"""What a memory answers, against eq:retrieval_score computed by hand, and what it keeps."""

import sqlite3
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostbot.memory import Ambiguous, Match, Novel, Pair, Retrieval, TextOnly, as_json, explain, open_memory
from hostbot.memory.entry import Embedded, Entry, name_of
from hostbot.memory.index import Index
from hostbot.memory.transfer import export_memory, import_memory
from hostbot.types import BadInput
from tests.memory.fakes import FakeEmbedder, clip, scene

TEXTS = {"stack the bowls": [1, 0, 0], "wipe the plate": [0, 1, 0], "pile the bowls": [4, 3, 0]}
SCENES = {10: [1, 0, 0], 20: [0, 2, 0], 30: [3, 4, 0]}


def known():
    return FakeEmbedder(TEXTS, SCENES, width=3)


@pytest.fixture
def memory(tmp_path):
    with open_memory(tmp_path / "m", known()) as made:
        for instruction, value in (("stack the bowls", 10), ("wipe the plate", 20)):
            made.add(clip(tmp_path / "v.mp4"), instruction, scene=scene(value))
        yield made


def test_scores_are_the_papers(memory):
    answer = memory.query("pile the bowls", scene(30), Retrieval(omega=0.25, delta=0.6))
    assert isinstance(answer, Match)
    # cos(text) = 4/5, cos(scene) = 3/5; the other entry has 3/5 and 4/5.
    assert answer.best.entry.name == "wipe-the-plate"
    assert answer.best.score == pytest.approx(0.25 * 0.6 + 0.75 * 0.8, abs=1e-6)
    assert (answer.best.text, answer.best.scene) == pytest.approx((0.6, 0.8), abs=1e-6)
    assert answer.others[0].score == pytest.approx(0.25 * 0.8 + 0.75 * 0.6, abs=1e-6)
    turned = memory.query("pile the bowls", scene(30), Retrieval(omega=0.75, delta=0.6))
    assert turned.best.entry.name == "stack-the-bowls"


@pytest.mark.parametrize(("delta", "kind"), [(0.79, Match), (0.81, Novel)])
def test_the_threshold_parts_recurring_from_novel(memory, delta, kind):
    answer = memory.query("pile the bowls", retrieval=Retrieval(delta=delta))
    assert isinstance(answer, kind)
    assert answer.omega == 1.0
    assert f"{delta:g}" in explain(answer)


def test_without_an_instruction_the_scene_decides(memory):
    answer = memory.query(scene=scene(20), retrieval=Retrieval(delta=0.9))
    assert answer.best.entry.name == "wipe-the-plate"
    assert answer.best.text is None
    assert answer.omega == 0.0


def test_what_cannot_be_told_apart_is_said(memory):
    rule = Retrieval(omega=0.5, delta=0.5, margin=0.05)
    answer = memory.query("pile the bowls", scene(30), rule)
    assert isinstance(answer, Ambiguous)
    assert {c.entry.name for c in answer.candidates} == {"stack-the-bowls", "wipe-the-plate"}
    assert "say which" in explain(answer)
    assert as_json(answer)["answer"] == "ambiguous"
    assert isinstance(
        memory.query("pile the bowls", scene(30), Retrieval(omega=0.5, delta=0.5, margin=0)), Match
    )


def test_an_empty_memory_knows_nothing(tmp_path):
    with open_memory(tmp_path / "m", known()) as memory:
        answer = memory.query("stack the bowls")
        assert answer == Novel(nearest=(), omega=1.0, delta=Retrieval().delta)
        assert memory.entries() == []


@given(
    st.integers(1, 40),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_the_index_equals_a_plain_loop(num, omega, seed):
    rng = np.random.default_rng(seed)
    unit = lambda n: (v := rng.normal(size=n)) / np.linalg.norm(v)  # noqa: E731
    rows = [
        Embedded(entry=entry(f"s{rng.integers(num)}", i + 1), text=unit(5), scene=unit(3)) for i in range(num)
    ]
    index = Index(5, 3)
    index.append(rows)
    text, seen = unit(5), unit(3)
    latest = {row.entry.name: row for row in rows}
    expected = sorted(
        (omega * (r.text @ text) + (1 - omega) * (r.scene @ seen) for r in latest.values()), reverse=True
    )
    found = [c.score for c in index.best(text, seen, omega, 5)]
    np.testing.assert_allclose(found, expected[:5], atol=1e-6)


def entry(name, version):
    return Entry(
        id=f"{version:032x}", name=name, version=version, instruction=name, sha256="0" * 64, suffix=".mp4",
        num_bytes=1, num_frames=1, duration_s=1.0, created="2026-01-01",
    )  # fmt: skip


def test_a_new_video_of_a_skill_is_its_next_version(tmp_path, memory):
    second = memory.add(clip(tmp_path / "v.mp4"), "Stack the bowls!", scene=scene(20)).entry
    assert second.label == "stack-the-bowls@2"
    assert [e.label for e in memory.entries()] == ["wipe-the-plate@1", "stack-the-bowls@2"]
    assert len(memory.entries(all_versions=True)) == 3
    assert memory.show("stack-the-bowls").version == 2
    assert memory.show("stack-the-bowls@1").version == 1
    assert memory.query(scene=scene(10), retrieval=Retrieval(delta=-1, margin=0)).best.score < 0.99
    assert [e.label for e in memory.remove("stack-the-bowls@2")] == ["stack-the-bowls@2"]
    assert memory.query("stack the bowls", scene(10)).best.entry.version == 1
    memory.remove("stack-the-bowls")
    with pytest.raises(BadInput, match="has no 'stack-the-bowls'"):
        memory.show("stack-the-bowls")
    assert memory.store.check() == []


def test_a_video_goes_with_its_last_entry_and_not_before(tmp_path, memory):
    video = clip(tmp_path / "v.mp4")
    one, two = (memory.add(video, text).entry for text in ("pour the tea", "empty the cup"))
    assert memory.video(one) == memory.video(two)
    assert memory.video(one).read_bytes() == video.read_bytes()
    memory.remove("pour-the-tea")
    assert memory.video(two).read_bytes() == video.read_bytes()
    stored = memory.video(two)
    memory.remove("empty-the-cup")
    assert not stored.exists()


def test_adding_tells_what_is_too_alike(tmp_path, memory):
    added = memory.add(clip(tmp_path / "v.mp4"), "stack the bowls", name="bowls-again", scene=scene(10))
    assert [c.entry.name for c in added.alike] == ["stack-the-bowls"]
    assert memory.add(clip(tmp_path / "v.mp4"), "wipe it", name="wipe-2").alike == ()


def test_another_process_sees_at_once(tmp_path, memory):
    with open_memory(tmp_path / "m", known()) as other:
        assert other.query("stack the bowls", scene(10)).best.entry.version == 1
        memory.add(clip(tmp_path / "v.mp4"), "stack the bowls", scene=scene(10))
        assert other.query("stack the bowls", scene(10)).best.entry.version == 2
        memory.remove("stack-the-bowls")
        assert isinstance(other.query("stack the bowls", scene(10)), Novel)


def test_threads_and_handles_add_at_once_and_nothing_is_lost(tmp_path):
    clip(tmp_path / "warm.mp4")
    memories = [open_memory(tmp_path / "m", FakeEmbedder()) for _ in range(3)]

    def work(number):
        for i in range(5):
            memories[number].add(clip(tmp_path / f"{number}.mp4"), "one and the same skill")
            memories[number].query(f"task {i}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    versions = [e.version for e in memories[0].entries(all_versions=True)]
    assert versions == list(range(1, 16))
    assert memories[0].store.check() == []


def test_export_and_import_bring_everything_back(tmp_path, memory):
    memory.add(clip(tmp_path / "v.mp4"), "stack the bowls", scene=scene(30), note="from the left")
    assert export_memory(memory, tmp_path / "out") == 3
    with open_memory(tmp_path / "new", known()) as copy:
        made = import_memory(copy, tmp_path / "out")
        assert (made.added, made.known, made.embedded_anew) == (3, 0, False)
        assert copy.entries(all_versions=True) == memory.entries(all_versions=True)
        assert import_memory(copy, tmp_path / "out").known == 3
        for query in (("pile the bowls", scene(30)), ("wipe the plate", None)):
            assert as_json(copy.query(*query)) == as_json(memory.query(*query))
        assert (
            copy.video(copy.show("wipe-the-plate")).read_bytes()
            == memory.video(memory.show("wipe-the-plate")).read_bytes()
        )
    with open_memory(tmp_path / "else", FakeEmbedder(identity="fake-2")) as other:
        assert import_memory(other, tmp_path / "out").embedded_anew
        assert other.query("stack the bowls").best.score == pytest.approx(1)


def test_an_import_that_meets_another_of_its_name_becomes_a_version(tmp_path, memory):
    export_memory(memory, tmp_path / "out")
    with open_memory(tmp_path / "new", known()) as copy:
        copy.add(clip(tmp_path / "v.mp4"), "stack the bowls")
        import_memory(copy, tmp_path / "out")
        assert sorted(e.label for e in copy.entries(all_versions=True)) == [
            "stack-the-bowls@1", "stack-the-bowls@2", "wipe-the-plate@1",
        ]  # fmt: skip


def test_an_empty_memory_has_nothing_to_export(tmp_path):
    with open_memory(tmp_path / "m", known()) as memory, pytest.raises(BadInput, match="nothing to export"):
        export_memory(memory, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_export_is_refused(tmp_path, memory):
    export_memory(memory, tmp_path / "out")
    video = next((tmp_path / "out/videos").glob("*/*"))
    video.write_bytes(video.read_bytes()[:-1])
    with (
        open_memory(tmp_path / "new", known()) as copy,
        pytest.raises(BadInput, match="not what was exported"),
    ):
        import_memory(copy, tmp_path / "out")
    (tmp_path / "out/memory.json").write_text("{}")
    with open_memory(tmp_path / "new", known()) as copy, pytest.raises(BadInput, match="no export"):
        import_memory(copy, tmp_path / "out")


def test_check_names_what_is_wrong(memory):
    first, second = (memory.video(e) for e in memory.entries())
    first.write_bytes(b"other")
    second.unlink()
    wrong = memory.store.check()
    assert any("not what was stored" in line and "stack-the-bowls@1" in line for line in wrong)
    assert any("missing" in line and "wipe-the-plate@1" in line for line in wrong)
    with pytest.raises(BadInput, match="missing"):
        memory.video(memory.show("wipe-the-plate"))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda m, v: m.query(), "needs an instruction"),
        (lambda m, v: m.add(v, "  "), "no name"),
        (lambda m, v: m.add(v, "x", name="../up"), "is no name"),
        (lambda m, v: m.add(v.parent, "x y"), "is no file"),
        (lambda m, v: m.query("x", np.zeros((2, 2), np.uint8)), "a scene is"),
        (lambda m, v: m.query("x", retrieval=Retrieval(omega=2)), "omega"),
        (lambda m, v: m.show("nothing"), "has no"),
    ],
)
def test_mistakes_are_told(tmp_path, memory, call, told):
    with pytest.raises(BadInput, match=told):
        call(memory, clip(tmp_path / "v.mp4"))
    assert len(memory.entries()) == 2


def test_a_broken_video_is_refused_and_leaves_nothing(tmp_path, memory):
    (tmp_path / "bad.mp4").write_bytes(b"no video at all" * 100)
    with pytest.raises(BadInput, match="bad.mp4"):
        memory.add(tmp_path / "bad.mp4", "a new one")
    assert len(memory.entries()) == 2
    assert not list((tmp_path / "m/videos/aside").iterdir())


def test_vectors_of_two_encoders_never_meet(tmp_path, memory):
    with pytest.raises(BadInput, match="was made with fake-1"):
        open_memory(tmp_path / "m", FakeEmbedder(identity="fake-2"))


def test_instructions_alone(tmp_path):
    with open_memory(tmp_path / "t", TextOnly(known())) as memory:
        memory.add(clip(tmp_path / "v.mp4"), "stack the bowls")
        answer = memory.query("pile the bowls")
        assert answer.best.score == pytest.approx(0.8)
        assert answer.best.scene is None
        assert not memory.sees_scenes
        with pytest.raises(BadInput, match="instructions only"):
            memory.query("pile the bowls", scene(3))


def test_a_damaged_database_and_a_newer_format_are_told(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/memory.db").write_bytes(b"x" * 4096)
    with pytest.raises(BadInput, match="damaged"):
        open_memory(tmp_path / "m", known())
    open_memory(tmp_path / "n", known()).store.close()
    with sqlite3.connect(tmp_path / "n/memory.db") as db:
        db.execute("update header set value = '99' where key = 'format'")
    with pytest.raises(BadInput, match="format 99"):
        open_memory(tmp_path / "n", known())


@pytest.mark.parametrize(
    "url", ["http://x/y", "memory://host/dir", "memory+ftp://x/y", "memory://", "memory+s3://"]
)
def test_addresses_that_are_none(url):
    with pytest.raises(BadInput):
        open_memory(url, known())


def test_addresses_of_folders(tmp_path):
    open_memory(f"memory://{tmp_path}/with%20space", known()).store.close()
    assert (tmp_path / "with space/memory.db").exists()


def test_names_come_from_words():
    assert name_of("Stack the BOWLS, please!") == "stack-the-bowls-please"
    assert len(name_of("very " * 100)) <= 80


def test_a_pair_has_both_names():
    pair = Pair(known(), FakeEmbedder(identity="eyes"))
    assert pair.identity == "fake-1+eyes"
