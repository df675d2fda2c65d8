"""The HOST release's folders and folders of videos: what is read, converted, and refused."""

import json

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from hostbot.data.clean import CleanConfig
from hostbot.data.convert import ConvertConfig, convert
from hostbot.data.embodiments import resolve_embodiment
from hostbot.data.features import FeatureSpec
from hostbot.data.folder import VideoFolder
from hostbot.data.info import describe
from hostbot.data.release import PROGRESS, ReleaseDataset
from hostbot.data.sources import open_source
from hostbot.data.stats import ACTION, STATE
from hostbot.data.store import open_dataset
from hostbot.data.write import DatasetWriter
from hostbot.types import DataError, VideoError, joint_space
from hostbot.video import VideoWriter


def flat(level, size=(32, 48)):
    return np.full((*size, 3), level, np.uint8)


def make_episode(folder, length=12, *, master=True, progress=True, video_view=True, seed=0):
    """An episode as the release lays it out: one view as pictures, one as an mp4, brightness tells the frame."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    frames = []
    for _ in range(length):
        frame = {}
        for who in ("follow", "master") if master else ("follow",):
            for side in ("left", "right"):
                frame[f"{who}_{side}_position"] = rng.normal(size=3).tolist()
                frame[f"{who}_{side}_rotation"] = rng.uniform(-1.5, 1.5, 3).tolist()
                frame[f"{who}_{side}_gripper"] = float(rng.uniform(0, 5))
        frames.append(frame)
    (folder / f"{folder.name}.json").write_text(json.dumps({"data": frames}))
    (folder / "instruction.txt").write_text("stack the bowls\n")
    (folder / "images").mkdir()
    for n in range(length):
        Image.fromarray(flat(10 * n)).save(folder / "images" / f"{n}.jpg")
    if video_view:
        with VideoWriter(folder / "gripper_images.mp4", (32, 48), 20) as writer:
            for n in range(length):
                writer.write(flat(10 * n))
    if progress:
        table = {str(n): n / (length - 1) for n in range(0, length, 2)} | {str(length - 1): 1.0}
        (folder / "info_dtw.json").write_text(json.dumps({"aligned_progress": table}))
    return frames


@pytest.fixture
def release(tmp_path):
    root = tmp_path / "task_a"
    for number in range(3):
        make_episode(root / f"episode_{number:03d}", 12 + number, seed=number)
    return root


def test_release_numbers_agree_with_the_files(release):
    source = ReleaseDataset(release, fps=32)
    assert len(source) == 3
    assert source.views == ("gripper_images", "images")
    for index in range(3):
        frames = json.loads((release / f"episode_{index:03d}" / f"episode_{index:03d}.json").read_text())[
            "data"
        ]
        assert source.episode(index).length == len(frames)
        assert source.episode(index).instruction == "stack the bowls"
        rows = source.rows(index, [STATE, ACTION, PROGRESS])
        for who, feature in (("follow", STATE), ("master", ACTION)):
            for frame, row in zip(frames, rows[feature], strict=True):
                for start, side in ((0, "left"), (10, "right")):
                    np.testing.assert_allclose(
                        row[start : start + 3], frame[f"{who}_{side}_position"], rtol=1e-6
                    )
                    matrix = Rotation.from_euler("xyz", frame[f"{who}_{side}_rotation"]).as_matrix()
                    np.testing.assert_allclose(row[start + 3 : start + 9], matrix[:, :2].T.ravel(), atol=1e-6)
                    assert row[start + 9] == pytest.approx(frame[f"{who}_{side}_gripper"])
        np.testing.assert_allclose(rows[PROGRESS][:, 0], np.linspace(0, 1, len(frames)), atol=0.05)


def test_release_frames_are_the_ones_asked_for(release):
    source = ReleaseDataset(release, fps=32)
    for view in source.views:
        levels = source.frames(0, view, [11, 0, 2, 10]).mean((1, 2, 3))
        np.testing.assert_allclose(levels, [110, 0, 20, 100], atol=2)


def test_without_a_leader_the_follower_is_the_action(tmp_path):
    make_episode(tmp_path / "e", master=False, progress=False)
    rows = ReleaseDataset(tmp_path / "e", fps=20).rows(0, [STATE, ACTION])
    np.testing.assert_array_equal(rows[STATE], rows[ACTION])


def test_a_list_of_paths_and_marked_episodes(release):
    (release / "episode_001" / "bad_info_dtw.json").write_text("{}")
    listing = release / "x_video_paths.json"
    listing.write_text(json.dumps(["episode_002", "episode_001"]))
    source = ReleaseDataset(listing, fps=32)
    assert [folder.name for folder in source.folders] == ["episode_002"]
    assert [folder.name for folder in source.rejected] == ["episode_001"]


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_what_the_release_marks_bad_or_lacks_is_told(release):
    (release / "episode_001" / "bad_info.json").write_text("{}")
    (release / "episode_002" / "info_dtw.json").unlink()
    told = describe(ReleaseDataset(release, fps=32), release).notes
    assert any("episode_001 is marked bad" in sentence for sentence in told)
    assert any("1 of 2 episodes have no info_dtw.json" in sentence for sentence in told)


DAMAGE = {
    "frame 0 lacks 'master_left_position'": lambda e: edit(
        e / "e.json", lambda c: [c["data"][0].pop(k) for k in list(c["data"][0]) if k.startswith("master")]
    ),
    "lacks 'follow_left_gripper'": lambda e: edit(
        e / "e.json", lambda c: c["data"][3].pop("follow_left_gripper")
    ),
    r"3 number\(s\)": lambda e: edit(
        e / "e.json", lambda c: c["data"][3].update(follow_left_position=[1, 2])
    ),
    "not a finite number at frame 4": lambda e: edit(
        e / "e.json", lambda c: c["data"][4].update(master_right_gripper=float("nan"))
    ),
    "one object a frame": lambda e: (e / "e.json").write_text('{"data": []}'),
    "not valid JSON": lambda e: (e / "e.json").write_text('{"data": [{'),
    "one length": lambda e: (e / "images" / "3.jpg").unlink(),
    "instruction.txt is missing": lambda e: (e / "instruction.txt").unlink(),
    "instruction.txt is empty": lambda e: (e / "instruction.txt").write_text(" \n"),
    "no UTF-8": lambda e: (e / "instruction.txt").write_bytes(b"\xff\xfe\xff"),
    r"progress must be in \[0, 1\]": lambda e: (e / "info_dtw.json").write_text(
        '{"aligned_progress": {"0": 7}}'
    ),
    "aligned_progress": lambda e: (e / "info_dtw.json").write_text('{"other": 1}'),
    "video|picture": lambda e: (e / "images" / "3.jpg").write_bytes(b"not a picture"),
}


@pytest.mark.parametrize("sentence", DAMAGE)
def test_damaged_release_episodes_get_a_sentence(tmp_path, sentence):
    episode = tmp_path / "e"
    make_episode(episode)
    DAMAGE[sentence](episode)
    with pytest.raises((DataError, VideoError), match=sentence) as told:
        source = ReleaseDataset(episode, fps=20)
        source.rows(0, list(source.widths))
        for view in source.views:
            source.frames(0, view, range(source.episode(0).length))
    assert "\n" not in str(told.value)


def test_release_converts_to_lerobot_and_says_what_it_left_out(release, tmp_path):
    (release / "episode_001" / "bad_action.json").write_text("{}")
    source = ReleaseDataset(release, fps=32)
    report = convert(source, tmp_path / "out", ConvertConfig())
    assert report.num_episodes == 2
    assert report.left_out == ("episode episode_001 is marked bad in the release",)
    copy = open_dataset(tmp_path / "out")
    assert copy.embodiment == source.embodiment
    for index in range(2):
        original, copied = (s.rows(index, [STATE, ACTION, PROGRESS]) for s in (source, copy))
        for name, values in original.items():
            np.testing.assert_array_equal(copied[name], values)
        for view in source.views:
            wanted = range(source.episode(index).length)
            difference = copy.frames(index, view, wanted).astype(int) - source.frames(index, view, wanted)
            assert np.abs(difference).max() <= 3


def test_an_interrupted_conversion_resumes(release, tmp_path):
    source = ReleaseDataset(release, fps=32)
    done = []

    def stop_after_two():
        done.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "out", ConvertConfig(), tick=stop_after_two)
    assert len(open_dataset(tmp_path / "out")) == 2
    with pytest.raises(DataError, match="not empty"):
        convert(source, tmp_path / "out", ConvertConfig())
    report = convert(source, tmp_path / "out", ConvertConfig(), resume=True)
    assert report.num_episodes == 3
    with pytest.raises(DataError, match="another dataset or with other options"):
        convert(source, tmp_path / "out", ConvertConfig(clean=CleanConfig()), resume=True)
    make_episode(release / "episode_009", 12)
    with pytest.raises(DataError, match="another dataset or with other options"):
        convert(ReleaseDataset(release, fps=32), tmp_path / "out", ConvertConfig(), resume=True)
    copy = open_dataset(tmp_path / "out")
    for index in range(3):
        np.testing.assert_array_equal(copy.rows(index, [STATE])[STATE], source.rows(index, [STATE])[STATE])


def test_cleaning_while_converting_is_counted(tmp_path):
    episode = tmp_path / "e"
    make_episode(episode, length=12, progress=False)
    edit(episode / "e.json", lambda c: c["data"].__setitem__(slice(4, 9), [c["data"][4]] * 5))
    report = convert(ReleaseDataset(episode, fps=20), tmp_path / "out", ConvertConfig(clean=CleanConfig()))
    assert report.num_removed == 4
    copy = open_dataset(tmp_path / "out")
    levels = copy.frames(0, "images", range(8)).mean((1, 2, 3))
    np.testing.assert_allclose(levels, [0, 10, 20, 30, 40, 90, 100, 110], atol=3)


@pytest.fixture
def videos(tmp_path):
    root = tmp_path / "videos"
    for task, rate, size in (("stack_the_bowls", 30, (64, 48)), ("press the button", 24, (48, 64))):
        (root / task).mkdir(parents=True)
        with VideoWriter(root / task / "clip.mp4", size, rate) as writer:
            for n in range(2 * rate):
                writer.write(flat(255 * n // (2 * rate), size))
    (root / "press the button" / "instruction.txt").write_text("push the red button")
    return root


def test_videos_become_demonstrations_at_one_rate(videos, tmp_path):
    source = VideoFolder(videos, rate_hz=10)
    assert [source.episode(i).instruction for i in range(2)] == ["push the red button", "stack the bowls"]
    assert [source.episode(i).length for i in range(2)] == [20, 20]
    expected = 255 * np.array([0, 0.5, 1.0, 1.9]) / 2
    for index in range(2):
        levels = source.frames(index, "third_person", [0, 5, 10, 19]).mean((1, 2, 3))
        np.testing.assert_allclose(levels, expected, atol=8)
    convert(source, tmp_path / "out", ConvertConfig(size=(48, 48)))
    copy = open_dataset(tmp_path / "out")
    assert copy.widths == {}
    assert [copy.episode(i).length for i in range(2)] == [20, 20]
    assert copy.frames(0, "third_person", [3]).shape == (1, 48, 48, 3)


def test_task_folders_with_instructions_are_people_not_release_episodes(videos):
    for task in ("stack_the_bowls", "press the button"):
        (videos / task / "instruction.txt").write_text(f"do {task}")
        clip = videos / task / "clip.mp4"
        (videos / task / "again.mp4").write_bytes(clip.read_bytes())
    source = open_source(videos, fps=10)
    assert isinstance(source, VideoFolder)
    assert len(source) == 4
    assert {source.episode(i).instruction for i in range(4)} == {"do stack_the_bowls", "do press the button"}


def test_a_clip_without_an_instruction_is_refused(videos):
    clip = videos / "IMG_0001.mp4"
    clip.write_bytes((videos / "stack_the_bowls" / "clip.mp4").read_bytes())
    with pytest.raises(DataError, match=r"IMG_0001.mp4 has no instruction"):
        [VideoFolder(videos, rate_hz=10).episode(i) for i in range(3)]
    clip.with_suffix(".txt").write_text("wave")
    assert VideoFolder(videos, rate_hz=10).episode(0).instruction == "wave"


def test_a_broken_clip_is_named(videos):
    clip = videos / "stack_the_bowls" / "clip.mp4"
    clip.write_bytes(clip.read_bytes()[:500])
    with pytest.raises(VideoError, match="stack_the_bowls"):
        VideoFolder(videos, rate_hz=10).episode(1)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.mkdir(), "is no dataset we know"),
        (lambda p: p.write_text("x"), "is a file"),
        (lambda p: make_episode(p / "e"), "give it with --fps"),
    ],
)
def test_what_is_no_dataset_gets_a_sentence(tmp_path, make, sentence):
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(DataError, match=sentence):
        open_source(path)


def test_a_lerobot_dataset_takes_no_other_rate(release, tmp_path):
    convert(ReleaseDataset(release, fps=32), tmp_path / "out", ConvertConfig())
    assert open_source(tmp_path / "out").fps == 32
    with pytest.raises(DataError, match="leave --fps out"):
        open_source(tmp_path / "out", fps=10)


def test_a_lerobot_copy_keeps_types_names_and_robot(tmp_path):
    rng = np.random.default_rng(0)
    features = {
        "observation.state": FeatureSpec(shape=(14,), names=tuple(f"motor_{i}" for i in range(14))),
        "action": FeatureSpec(shape=(14,), names=tuple(f"motor_{i}" for i in range(14))),
        "t_epoch": FeatureSpec(dtype="float64", shape=(1,)),
        "t_ns": FeatureSpec(dtype="int64", shape=(1,)),
        "next.done": FeatureSpec(dtype="bool", shape=(1,)),
        "note": FeatureSpec(dtype="string", shape=(1,)),
    }
    rows = {
        "observation.state": rng.normal(size=(9, 14)).astype(np.float32),
        "action": rng.normal(size=(9, 14)).astype(np.float32),
        "t_epoch": 1.7e9 + np.arange(9)[:, None] / 30,
        "t_ns": 1_700_000_000_000_000_001 + np.arange(9)[:, None],
        "next.done": np.arange(9)[:, None] == 8,
        "note": [f"row {i}" for i in range(9)],
    }
    with DatasetWriter(
        tmp_path / "a", fps=30, features=features, views={"top": (32, 48)}, robot_type="so100"
    ) as writer:
        writer.add_episode(rows, {"top": [flat(10 * n) for n in range(9)]}, "stack")
    source = open_dataset(tmp_path / "a")
    embodiment = resolve_embodiment("joints", source)
    assert [part.name for part in embodiment.parts] == [f"motor_{i}" for i in range(14)]
    report = convert(source, tmp_path / "b", ConvertConfig(), embodiment=embodiment)
    assert report.left_out == ("feature 'note': it is of type string, not numeric",)
    copy = open_dataset(tmp_path / "b")
    assert copy.embodiment == embodiment
    assert copy.schema.robot_type == "so100"
    for name in copy.widths:
        assert copy.schema.features[name].dtype == source.schema.features[name].dtype
        assert copy.schema.features[name].names == source.schema.features[name].names
        np.testing.assert_array_equal(copy.rows(0, [name])[name], rows[name])
    with pytest.raises(DataError, match="says itself"):
        resolve_embodiment("joints", replace_parts(copy))
    with pytest.raises(DataError, match="14 wide"):
        resolve_embodiment("bimanual", source)
    with pytest.raises(DataError, match="there is no embodiment 'aloha'"):
        resolve_embodiment("aloha", source)


def replace_parts(source):
    """The same dataset saying that it is another robot."""
    other = joint_space([f"x{i}" for i in range(14)], 30, ("top",))
    return type(
        "Other",
        (),
        {"__getattr__": lambda self, name: other if name == "embodiment" else getattr(source, name)},
    )()
