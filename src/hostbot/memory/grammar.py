"""What an instruction is about: its things in the order of their roles, its directions, and its other words.

English, by closed classes only (determiners, prepositions, auxiliaries, colours, opposites): no list of nouns or of
verbs, so that a task nobody thought of is read like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DETERMINERS = _words(
    "the a an both its this that these those your my our each every some any one two another other"
)
COLOURS = {
    name: name
    for name in _words(
        "red orange yellow green blue purple pink brown black white grey cyan magenta turquoise beige silver gold"
    )
} | {"gray": "grey", "golden": "gold", "violet": "purple"}
_OPPOSITES = {
    "side": (
        "left leftwards leftward counterclockwise anticlockwise",
        "right rightwards rightward clockwise",
    ),
    "depth": ("front near closer nearer towards toward", "behind back far away farther further"),
    "shut": ("close closed shut", "open opened out"),
    "height": ("up lift raise hoist", "down lower"),
    "source": ("from off out remove", ""),
}
_PREPOSITIONS = _words(
    "in into inside on onto upon atop off out of from to towards toward at by with without using over above under "
    "underneath below beneath beside behind before after around along across through until till near next between up "
    "down back away aside apart together"
)
_AUXILIARIES = _words(
    "is are was be been being should must could would will shall needs need has have goes go belongs belong stands "
    "stand ends end lies lie do does not want like let make i me you they it them itself there here please now"
)
_CONNECTIVES = _words(
    "and or then so that which while when once as if but also too first second last again afterwards followed both "
    "direction side top all way high firmly fully half"
)
_RESULTS = _words("clean dry empty upright flat straight full")
# `Cover the book with the cloth` is `put the cloth over the book`: what comes after these words acts first.
_FIRST, _FIRST_CLAUSE = _words("with using under underneath beneath below"), _words("after once")
_ALSO_VERBS = _words("open close shut lift raise hoist lower remove")
_NO_TOOL, _BACKWARD = _words("begin start finish end"), _words("it that this")
_LONGEST = 4
"""Words of a thing's name."""


def _signs() -> dict[str, tuple[tuple[str, int], ...]]:
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for axis, sides in _OPPOSITES.items():
        for sign, side in zip((1, -1), sides, strict=True):
            for word in side.split():
                found[word] = (*found.get(word, ()), (axis, sign))
    return found


_SIGNS = _signs()
_CLOSED = _PREPOSITIONS | _AUXILIARIES | _CONNECTIVES | frozenset(_SIGNS)


@dataclass(frozen=True)
class Thing:
    """``the yellow small bowl``: what it is, and what tells it from others of its kind."""

    modifiers: tuple[str, ...]
    head: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An instruction, taken apart."""

    things: tuple[Thing, ...]
    """What acts on the others comes first, however the sentence is turned."""
    directions: tuple[tuple[str, int], ...]
    """Opposites that are named, as axis and sign; the last word on an axis counts."""
    acts: tuple[str, ...]
    """What is left: verbs, mostly."""


def read(text: str) -> Reading:
    """Take an instruction apart."""
    words = re.findall(r"[^\W\d_]+|[.,;:?!]", text.lower())
    found: list[tuple[bool, Thing]] = []
    acts: list[str] = []
    place, first, clause = 0, False, False
    while place < len(words):
        before = words[place - 1] if place else ""
        word, end = words[place], _thing_end(words, place, bare=before in _ALSO_VERBS or before in acts[-1:])
        if end is not None:
            name = [_singular(w) for w in words[place:end] if w not in DETERMINERS | _RESULTS]
            found.append((first or clause, Thing(tuple(name[:-1]), name[-1])))
            place, first = end, False
            continue
        if not word.isalpha():
            clause = False
        elif word in _FIRST:
            first = before not in _NO_TOOL
        elif word in _FIRST_CLAUSE:
            clause = " ".join(words[place + 1 : place + 2]) not in _BACKWARD
        elif word in _PREPOSITIONS:
            first = False
        elif word not in _CLOSED | DETERMINERS and not word.endswith("ly"):
            acts.append(word)
        place += 1
    order = sorted(found, key=lambda item: not item[0])
    signs = dict(pair for word in words for pair in _SIGNS.get(word, ())) | _switched(words)
    return Reading(
        things=tuple(thing for _, thing in order), directions=tuple(signs.items()), acts=tuple(acts)
    )


def _thing_end(words: list[str], begin: int, bare: bool) -> int | None:
    """Where the name of a thing ends that begins here with a determiner, a colour or, after a verb, with any word."""
    if not (words[begin] in DETERMINERS or words[begin] in COLOURS or bare):
        return None
    inner = begin
    while inner < len(words) and words[inner] in DETERMINERS | _RESULTS:
        inner += 1
    end = inner
    while end < len(words) and end - inner < _LONGEST and _names(words[end], end > inner):
        end += 1
    return end if end > inner else None


def _names(word: str, inside: bool) -> bool:
    """Whether a word can be part of a thing's name; what follows its noun (`clean`, `pressed`) is not."""
    follows = inside and (word in _RESULTS or (len(word) > len("used") and word.endswith("ed")))
    return word.isalpha() and word not in _CLOSED | DETERMINERS and not follows


def _switched(words: list[str]) -> dict[str, int]:
    """`turn the light on`, `switch off the fan`: elsewhere `on` and `off` say where things go."""
    said = re.search(
        r"\b(?:turn|switch)\b (?:(on|off)\b|[^.,;:?!]* (on|off)(?= [.,;:?!]|$))", " ".join(words)
    )
    return {"power": 1 if "on" in said.groups() else -1} if said else {}


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > len("gas") else word
