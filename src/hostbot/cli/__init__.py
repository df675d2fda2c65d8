"""The one command, ``hostbot``; its verbs follow the data.

Each group of verbs is a module beside this one, imported only when called, so that ``hostbot data info``
never waits for torch. A verb is a frozen dataclass: its fields are the flags, its docstrings the help, its
``run`` the work. A user's mistake ends in one sentence on stderr and exit code 2; Ctrl-C in exit code 130.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

from hostbot import __version__
from hostbot.types import BadInput

GROUPS = {
    "demo": "see what hostbot does, on this machine, in one command",
    "acquire": "watch one video and keep the skill, as a file or in memory",
    "do": "say a task: do it if it was ever shown, or ask for a video",
    "video": "look at a video as hostbot sees it; cut it to a control rate and size",
    "data": "datasets: what is in them, conversion, statistics, pictures, checks, pairs",
    "align": "which moment of one video is which of another: train, map, label, evaluate, plot",
    "sim": "the bench: tasks, experts, human videos, recordings, checks, speed",
    "model": "the model: build it from Wan's weights, look inside a checkpoint",
    "train": "training: samples from data, the VAE, matching, both stages, fine-tuning",
    "reproduce": "the tiny weights from nothing, piece by piece, on one GPU",
    "eval": "closed-loop success in the bench, or predicted against recorded actions",
    "memory": "demonstrations that are kept: add, find by instruction, list, remove, export, check",
    "serve": "a policy on the network: openpi's protocol, several robots, memory, limits",
    "doctor": "check that everything hostbot needs works here",
}
_INTERRUPTED, _MISTAKE = 130, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name need not be text
    return _guarded(arguments)


def overview() -> str:
    """The first page of help."""
    width = max(map(len, GROUPS)) + 2
    groups = "\n".join(f"  {name:<{width}}{text}" for name, text in GROUPS.items())
    return (
        "hostbot: a robot watches one human video and does the task, with no parameter update.\n\n"
        f"usage: hostbot GROUP [VERB] [FLAGS]\n\n{groups}\n\n"
        "`hostbot GROUP --help` lists a group's verbs, `hostbot GROUP VERB --help` a verb's flags."
    )


def _guarded(arguments: list[str]) -> int:
    try:
        _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except BadInput as mistake:
        return _tell(mistake)
    except BrokenPipeError:
        # The reader of a pipe went away (`hostbot ... | head`): not an error, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as mistake:
        where = f"{mistake.filename}: " if mistake.filename else ""
        return _tell(f"{where}{mistake.strerror or mistake}")
    except KeyboardInterrupt as stop:
        print(f"\nhostbot: interrupted{f'; {stop}' if str(stop) else ''}", file=sys.stderr)
        return _INTERRUPTED
    except SystemExit as end:  # tyro's own, for --help and wrong flags
        return end.code if isinstance(end.code, int) else _MISTAKE


def _tell(mistake: object) -> int:
    if os.environ.get("HOSTBOT_DEBUG"):
        raise
    print(f"hostbot: {mistake}", file=sys.stderr)
    return _MISTAKE


def _run(arguments: list[str]) -> None:
    group = arguments[0] if arguments else "help"
    if group in ("-h", "--help", "help"):
        print(overview())
    elif group in ("-V", "--version"):
        print(f"hostbot {__version__}")
    else:
        _run_verb(group, arguments[1:])


def _run_verb(group: str, arguments: list[str]) -> None:
    if group not in GROUPS:
        near = difflib.get_close_matches(group, GROUPS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(GROUPS)}"
        raise BadInput(f"there is no {group!r}{hint}")
    verbs: tuple[type, ...] = importlib.import_module(f"hostbot.cli.{group}").VERBS
    _parse(group, verbs, arguments).run()


def _parse(group: str, verbs: tuple[type, ...], arguments: list[str]) -> Any:
    import tyro

    wanted: Any = verbs[0]
    if len(verbs) > 1:
        named = [Annotated[verb, tyro.conf.subcommand(verb_name(verb), prefix_name=False)] for verb in verbs]
        wanted = Union[tuple(named)]  # noqa: UP007
    markers = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes)
    description = GROUPS[group] if len(verbs) > 1 else None
    return tyro.cli(wanted, prog=f"hostbot {group}", args=arguments, description=description, config=markers)


def verb_name(verb: type) -> str:
    """``ContactSheet`` is typed ``contact-sheet``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", verb.__name__).lower()


def entry() -> None:
    """The console script."""
    sys.exit(main())
