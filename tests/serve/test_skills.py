"""Skills and memory over the wire."""

import pytest

from hostbot.memory import open_memory
from hostbot_client.client import Refused
from tests.memory.fakes import FakeEmbedder, clip
from tests.serve.running import EchoPolicy, client, observation, running

SKILL = sum(b"stack") % 251


def test_a_video_is_acquired_over_the_wire_and_followed(tmp_path):
    policy = EchoPolicy()
    video = tmp_path / "v.mp4"
    video.write_bytes(bytes(range(256)) * 40_000)
    with running(policy) as server, client(server) as robot:
        made = robot.acquire(video, "pour the tea")
        assert policy.acquired == [(video.read_bytes(), "pour the tea")]
        answer = robot.infer(observation(prompt="something else"))
        assert answer["host"]["skill"] == made["id"]
        assert answer["actions"][2, 0] == sum(b"pour the tea") % 251 + video.stat().st_size
        with client(server) as other:
            other.ask("start", skill=made["skill"])
            assert other.infer(observation())["actions"][2, 0] == answer["actions"][2, 0]
            assert other.acquire(video, "pour the tea")["id"] == made["id"]
        assert len(policy.acquired) == 1, "the same video and words are watched once"
        video.write_bytes(b"broken")
        with pytest.raises(Refused, match="broken"):
            robot.acquire(video, "pour the tea")


def test_an_upload_over_the_limit_is_refused(tmp_path):
    with running(max_video_bytes=1000) as server, client(server) as robot:
        robot.ask("upload", data=b"x" * 900, begin=True)
        with pytest.raises(Refused, match="1000 bytes"):
            robot.ask("upload", data=b"x" * 200)
        assert robot.ask("upload", data=b"x" * 200)["bytes"] == 200


def test_the_memory_chooses_what_to_do(tmp_path):
    texts = {
        "stack the bowls": [1, 0, 0],
        "pile the bowls": [9, 1, 0],
        "wipe": [0, 0, 1],
        "either": [1, 1, 0],
        "place the bowls": [1, 0.001, 0],
    }
    memory = open_memory(tmp_path / "m", FakeEmbedder(texts, {n: [1, 0, 0] for n in range(256)}, width=3))
    policy = EchoPolicy()
    with running(policy, memory) as server, client(server) as robot:
        video = clip(tmp_path / "v.mp4")
        made = robot.acquire(video, "stack the bowls", remember=True)
        assert made["remembered"] == "stack-the-bowls@1"
        with client(server) as other:
            answer = other.infer(observation(prompt="pile the bowls"))
            assert answer["host"]["skill"] == "stack-the-bowls@1"
            assert answer["host"]["score"] > 0.9
            assert policy.acquired == [(video.read_bytes(), "stack the bowls")]
            with pytest.raises(Refused, match="novel"):
                other.infer(observation(prompt="wipe"))
            assert other.ask("query", instruction="wipe")["answer"] == "novel"
            assert [s["skill"] for s in other.ask("skills")["skills"]] == [made["id"], "stack-the-bowls@1"]
            other.acquire(video, "place the bowls", remember=True)
        with client(server) as third, pytest.raises(Refused, match="say which"):
            third.infer(observation(prompt="pile the bowls"))
    memory.store.close()


def test_a_novel_task_may_go_by_language_alone(tmp_path):
    memory = open_memory(tmp_path / "m", FakeEmbedder())
    with running(None, memory, novel="language") as server, client(server) as robot:
        assert robot.infer(observation())["actions"][2, 0] == SKILL
    memory.store.close()
