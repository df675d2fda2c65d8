"""``hostbot memory``: the demonstrations that are kept, from the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hostbot.cli.embedding import Embedding, default_memory, first_frame, opened
from hostbot.cli.show import print_json, print_table
from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.memory import Entry

Label = Annotated[Positional[str], arg(metavar="SKILL")]


def shown(entry: Entry) -> dict[str, object]:
    """An entry as JSON values."""
    return {"skill": entry.label, **vars(entry)}


@dataclass(frozen=True, kw_only=True)
class _Memory:
    memory: str = field(default_factory=default_memory)
    """A folder, memory:///folder, or memory+s3://bucket/prefix; $HOSTBOT_MEMORY where it is set."""
    json: bool = False
    """Print one JSON value."""


@dataclass(frozen=True, kw_only=True)
class _Embedding(_Memory):
    embedding: Embedding = field(default_factory=Embedding)


@dataclass(frozen=True, kw_only=True)
class Add(_Embedding):
    """Keep a demonstration; another video of the same skill becomes its next version."""

    video: Annotated[Positional[Path], arg(metavar="VIDEO")]
    """A video file."""
    instruction: str
    """What is done in it, in words."""
    name: Annotated[str | None, arg(metavar="NAME")] = None
    """The skill's name; made from the instruction where none is given."""
    note: str = ""

    def run(self) -> None:
        """Store it and say so when it is on disk."""
        with opened(self.memory, self.embedding, create=True) as memory:
            added = memory.add(self.video, self.instruction, name=self.name, note=self.note)
        if self.json:
            print_json({**shown(added.entry), "alike": [c.entry.label for c in added.alike]})
            return
        print(f"kept {added.entry.label} ({added.entry.num_frames} frames) in {self.memory}")
        for other in added.alike:
            print(
                f"  beware: {other.entry.label} is so alike (score {other.score:.3f}) that a query names both"
            )


@dataclass(frozen=True, kw_only=True)
class Query(_Embedding):
    """Is this task known? Answers with a stored demonstration, or that it is novel, or that several are too alike."""

    instruction: Annotated[Positional[str], arg(metavar="INSTRUCTION")]
    """The task, in words."""
    scene: Annotated[Path | None, arg(metavar="PICTURE")] = None
    """A picture or video of what the robot sees now, where the memory compares scenes."""
    delta: Annotated[float | None, arg(metavar="DELTA")] = None
    """Scores below are novel."""

    def run(self) -> None:
        """Ask and explain."""
        from dataclasses import replace

        from hostbot.memory import as_json, explain

        with opened(self.memory, self.embedding) as memory:
            rule = memory.retrieval if self.delta is None else replace(memory.retrieval, delta=self.delta)
            answer = memory.query(self.instruction, first_frame(self.scene), rule)
        found = as_json(answer)
        if self.json:
            print_json(found)
            return
        print(explain(answer))
        candidates: list[dict[str, object]] = found["candidates"]  # type: ignore[assignment]
        rows = [(c["skill"], c["score"], c["instruction"]) for c in candidates]
        print_table("nearest", ["skill", "score", "instruction"], rows)


@dataclass(frozen=True, kw_only=True)
class List(_Memory):
    """What is kept."""

    all: bool = False
    """Older versions too."""

    def run(self) -> None:
        """One row a skill."""
        with opened(self.memory) as memory:
            entries = memory.entries(all_versions=self.all)
        if self.json:
            print_json([shown(entry) for entry in entries])
            return
        rows = [(e.label, e.instruction, e.duration_s, e.num_bytes, e.created[:19], e.note) for e in entries]
        print_table(self.memory, ["skill", "instruction", "seconds", "bytes", "added (UTC)", "note"], rows)


@dataclass(frozen=True, kw_only=True)
class Show(_Memory):
    """One skill: where its video lies and everything that is known of it."""

    skill: Label
    """NAME or NAME@VERSION."""

    def run(self) -> None:
        """Print it."""
        with opened(self.memory) as memory:
            entry = memory.show(self.skill)
            found = {**shown(entry), "video": str(memory.video(entry))}
        if self.json:
            print_json(found)
            return
        print_table(entry.label, ["", ""], found.items())


@dataclass(frozen=True, kw_only=True)
class Remove(_Memory):
    """Forget a skill with all its versions, or NAME@VERSION alone."""

    skill: Label
    """NAME or NAME@VERSION."""

    def run(self) -> None:
        """Remove and name what went."""
        with opened(self.memory) as memory:
            gone = [entry.label for entry in memory.remove(self.skill)]
        if self.json:
            print_json(gone)
        else:
            print(f"forgot {', '.join(gone)}")


@dataclass(frozen=True, kw_only=True)
class Export(_Memory):
    """Write everything into a new folder, to copy, keep or publish."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A folder that does not exist yet."""

    def run(self) -> None:
        """Write it aside, then move it into place."""
        from hostbot.memory.transfer import export_memory

        with opened(self.memory) as memory:
            count = export_memory(memory, self.folder)
        if self.json:
            print_json({"exported": count, "folder": str(self.folder)})
        else:
            print(f"exported {count} demonstrations to {self.folder}")


@dataclass(frozen=True, kw_only=True)
class Import(_Embedding):
    """Add what an export holds and this memory lacks; run it again if it was interrupted."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """What `hostbot memory export` wrote."""

    def run(self) -> None:
        """Add and count."""
        from hostbot.memory.transfer import import_memory

        with opened(self.memory, self.embedding, create=True) as memory:
            made = import_memory(memory, self.folder)
        if self.json:
            print_json(vars(made))
            return
        how = ", embedded anew" if made.embedded_anew else ""
        print(f"imported {made.added} demonstrations{how}; {made.known} were known")


@dataclass(frozen=True, kw_only=True)
class Check(_Memory):
    """Read everything and say what is wrong; exit code 2 if anything is."""

    sweep: bool = False
    """Remove files that a killed process left behind."""

    def run(self) -> None:
        """Check, after sweeping if asked to."""
        with opened(self.memory) as memory:
            swept = memory.store.sweep() if self.sweep else 0
            wrong, count = memory.store.check(), len(memory.entries(all_versions=True))
        if self.json:
            print_json({"entries": count, "swept": swept, "wrong": wrong})
        else:
            print("\n".join([*wrong, f"{count} demonstrations checked, {swept} left-over files removed"]))
        if wrong:
            raise BadInput(f"{self.memory} has {len(wrong)} thing(s) wrong")


VERBS = (Add, Query, List, Show, Remove, Export, Import, Check)
