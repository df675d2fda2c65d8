"""The shared store on an S3-compatible server on loopback, held against SQLite.

Needs ``pip install 'hostbot[lance]' 'moto[server]'``.
"""

import threading

import pytest

from hostbot.memory import Novel, as_json, open_memory
from hostbot.memory.transfer import export_memory, import_memory
from hostbot.types import BadInput
from tests.memory.fakes import FakeEmbedder, clip, scene

pytestmark = pytest.mark.slow
lancedb = pytest.importorskip("lancedb", reason="the lance extra is not installed")


@pytest.fixture(scope="module")
def storage():
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    import boto3

    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    options = {
        "endpoint": f"http://{host}:{port}", "region": "us-east-1", "allow_http": "true",
        "access_key_id": "x", "secret_access_key": "x",
    }  # fmt: skip
    boto3.client(
        "s3", endpoint_url=options["endpoint"], region_name="us-east-1",
        aws_access_key_id="x", aws_secret_access_key="x",
    ).create_bucket(Bucket="fleet")  # fmt: skip
    yield options
    running.stop()


@pytest.fixture(params=["s3", "folder"])
def opened(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "folder":
        return lambda **k: open_memory(f"memory+lance://{tmp_path}/table", FakeEmbedder(**k))
    options = request.getfixturevalue("storage")
    url = f"memory+s3://fleet/{request.node.name.replace('[', '-').replace(']', '')}"
    return lambda **k: open_memory(url, FakeEmbedder(**k), storage=options)


def test_it_answers_as_sqlite_does(tmp_path, opened):
    shared, local = opened(), open_memory(tmp_path / "local", FakeEmbedder())
    assert isinstance(shared.query("anything"), Novel)
    for number in range(6):
        video = clip(tmp_path / "v.mp4", salt=bytes([number]))
        for memory in (shared, local):
            memory.add(video, f"task {number % 4}", scene=scene(8 * number))
    shared.remove("task-3")
    local.remove("task-3")
    asked = [("task 1", scene(40)), ("task 2", None), ("task 3", scene(24))]
    for query in asked:
        assert as_json(shared.query(*query)) == as_json(local.query(*query))
    told = lambda m: [(e.label, e.sha256, e.num_bytes) for e in m.entries(all_versions=True)]  # noqa: E731
    assert told(shared) == told(local)
    for entry in shared.entries():
        assert shared.video(entry).read_bytes() == local.video(local.show(entry.label)).read_bytes()
    assert shared.store.check() == []
    shared.store.sweep()
    assert told(shared) == told(local)


def test_a_second_machine_sees_the_commit_and_keeps_the_encoder(tmp_path, opened):
    one, two = opened(), opened()
    one.add(clip(tmp_path / "v.mp4"), "stack the bowls")
    assert two.query("stack the bowls").best.entry.version == 1
    two.add(clip(tmp_path / "v.mp4"), "stack the bowls")
    assert one.query("stack the bowls").best.entry.version == 2
    with pytest.raises(BadInput, match="was made with"):
        opened(identity="other")


def test_writers_at_once_lose_nothing(tmp_path, opened):
    first = opened()
    first.add(clip(tmp_path / "v.mp4"), "the first")
    memories = [opened() for _ in range(3)]

    def work(number):
        for i in range(3):
            memories[number].add(clip(tmp_path / f"{number}.mp4"), f"task {number} {i}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(first.entries()) == 10
    assert first.store.check() == []


def test_it_exports_into_sqlite(tmp_path, opened):
    shared = opened()
    shared.add(clip(tmp_path / "v.mp4"), "stack the bowls")
    export_memory(shared, tmp_path / "out")
    with open_memory(tmp_path / "local", FakeEmbedder()) as local:
        assert import_memory(local, tmp_path / "out").added == 1
        assert local.entries() == shared.entries()
