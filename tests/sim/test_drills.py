"""Drills: one scene, each of its things meant in turn: touched by either body, pushed, moved or held."""

import contextlib
import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hostbot.model.sizes import tiny_model
from hostbot.model.text import HashedWords
from hostbot.sim.catalogue import split, task
from hostbot.sim.deeds import hold, move, push, shape_of
from hostbot.sim.demonstrator import DemonstratorConfig, demonstrate
from hostbot.sim.drills import (
    BRING,
    HOLD,
    LEAN,
    MOVE,
    PUSH,
    SHARES,
    THEN,
    THINGS,
    TOUCH,
    WAVE,
    carried,
    drill,
    places,
    touched,
)
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import midway_episode, robot_episode
from hostbot.sim.layout import NoRoom
from hostbot.sim.moves import Pick, Put, Shove
from hostbot.sim.predicates import All, InHand, Pressed, PutDown, Shifted
from hostbot.sim.sketch import human_sketch, robot_sketch
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, mat, thing
from hostbot.sim.things.made_up import COUNT, SLIM, made_up, palette, slim

BLIND = EnvConfig(views=())
ACTED = [PUSH, MOVE, HOLD, THEN, LEAN, WAVE]
SKETCHED = "d2f06273716416cd184fa0d62dd7fcc4922bfad86cf15303e94d88f5893758f0"
"""Hash of the drills that were sketched before any other family was there."""


def of_family(family, seeds, which=0, begun=True):
    """The drills of a family among those of some seeds."""
    drills = [(seed, drill(seed, which, begun)) for seed in seeds]
    return [(seed, one) for seed, one in drills if one.family == family]


def test_a_scene_is_the_same_whichever_thing_is_meant():
    for seed in range(40):
        drills = [drill(seed, which) for which in range(THINGS)]
        scenes = [sorted((t.name, t.kind, t.colour) for t in one.scene) for one in drills]
        assert all(scene == scenes[0] for scene in scenes)
        brought = int(drills[0].family == BRING)
        assert len({(kind, colour) for _, kind, colour in scenes[0]}) == THINGS + brought
        meant = [one.things[-1].name for one in drills]
        assert len(set(meant)) == THINGS
        assert all(one.things[-1].words in one.instructions[0] for one in drills)
        assert drill(seed, 5) == drills[5 % THINGS]


def test_things_are_such_as_training_tasks_show_in_every_colour_or_made_up():
    shown = {thing.kind for name in split().train for thing in task(name).scene}
    invented = {(made_up(number), colour) for number in range(COUNT) for colour in palette(number)}
    for family, known in ((TOUCH, touched()), (BRING, places())):
        drawn = [thing for _, one in of_family(family, range(3000)) for thing in one.things[-1:] + one.foils]
        looks = {(thing.kind, thing.colour) for thing in drawn}
        assert len(looks & invented) > 0.9 * len(invented)
        seen = looks - invented
        assert {kind for kind, _ in seen} <= shown
        assert len(seen) == 12 * len(known)
        assert 0.4 < np.mean([(thing.kind, thing.colour) in invented for thing in drawn]) < 0.6
    held = {one.things[0].kind.__name__ for _, one in of_family(BRING, range(400))}
    assert set(carried()) < held


def test_no_drill_puts_what_a_novel_task_puts_there():
    """Whether it is put, pushed, stored or poured there: not even in the same scene."""
    novel = [{(t.kind.__name__, t.colour) for t in task(name).things} for name in split().novel]
    assert {("block", "purple"), ("mat", "blue")} in novel  # pushed
    for _, one in of_family(BRING, [*range(6000), 76869, 79516, 100855]):
        held = (one.things[0].kind.__name__, one.things[0].colour)
        others = {(t.kind.__name__, t.colour) for t in one.scene} - {held}
        assert not any(held in looks and others & looks for looks in novel)


INVENTED = [(made_up, n) for n in range(0, COUNT, 5)] + [(slim, n) for n in range(0, SLIM, 5)]


@pytest.mark.parametrize(("kinds", "number"), INVENTED)
def test_what_was_made_up_can_be_taken_and_stays_where_it_is_put(kinds, number):
    thing, other = (
        Thing(name="it", kind=kinds(number), colour="red"),
        Thing(name="mat", kind=mat, colour="blue"),
    )
    one = Task(
        name="made-up", family="made-up", things=(thing, other), foils=(), instructions=("",),
        script=(Pick(item="it"), Put(item="it", frame="mat")), success=PutDown("it", "mat", (0, 0, 0)),
    )  # fmt: skip
    assert any(robot_episode(one, seed, BLIND).success for seed in range(2))


def test_half_of_the_scenes_are_of_either_kind():
    assert 0.4 < np.mean([drill(seed, 0).family == BRING for seed in range(400)]) < 0.6


def test_most_scenes_have_two_of_a_kind_that_colour_alone_tells_apart():
    one_of = [one for _, one in of_family(TOUCH, range(400))]
    assert 0.7 < np.mean([len({thing.kind for thing in one.scene}) < THINGS for one in one_of]) < 0.98


def test_one_instruction_is_one_place():
    """Whatever is brought: robots and people are exchanged by the instruction."""
    places = {}
    for _, one in of_family(BRING, range(1500)):
        put = one.script[1]
        places.setdefault(one.instructions[0], set()).add((one.things[1].kind, put.at, put.square))
        assert one.things[0].words not in one.instructions[0]
    assert all(len(found) == 1 for found in places.values())
    named = of_family(BRING, range(50), begun=False)
    assert all(one.things[0].words in one.instructions[0] and not one.begun for _, one in named)


def sketches(family, seeds):
    """Robots' sketches of every thing that may be meant, with the world they were made in and the hand that moves."""
    for seed, one in of_family(family, seeds):
        env = SimEnv(one, BLIND)
        with contextlib.suppress(NoRoom):
            env.begin(seed)
            for which in range(THINGS):
                meant = drill(seed, which)
                sketch = robot_sketch(one, seed, BLIND, 1.0, meant if which else None)
                if sketch.success:
                    path, hands = sketch.trajectory, (slice(0, 3), slice(10, 13))
                    hand = max(hands, key=lambda h: np.linalg.norm(path.state[1, h] - path.state[0, h]))
                    yield env.world, meant, path, hand
        env.close()


def test_the_hand_goes_to_the_thing_that_is_meant():
    """Of all things in the scene the one that is meant is nearest to the hand at its first contact."""
    made = 0
    for world, meant, path, hand in sketches(TOUCH, range(24)):
        made += 1
        at = path.state[1, hand]
        away = {t.name: np.linalg.norm((world.pose(t.name).pos - at)[:2]) for t in meant.scene}
        big = meant.things[0].kind.__name__ == "drawer"  # held by its handle, away from its middle
        assert big or min(away, key=away.__getitem__) == meant.things[0].name
    assert made > 30


def test_what_is_held_is_brought_to_the_place_that_is_meant():
    """One state with something up in the hand, then the hand at the place: over it, in it or at its side."""
    made = 0
    for world, meant, path, hand in sketches(BRING, range(30)):
        made += 1
        assert len(path.state) == 2
        assert [event.name for event in path.events] == ["release"]
        put, frame = meant.script[1], world.base(meant.things[1].name)
        place = frame.pos + (np.eye(3) if put.square else frame.rot) @ np.asarray(put.at)
        assert np.linalg.norm((path.state[1, hand] - place)[:2]) < 0.06  # a thing may be held at its rim
        assert path.state[0, hand][2] > world.pose(meant.things[0].name).pos[2]
    assert made > 25


def test_a_person_brings_what_is_in_the_hand():
    """As in a whole video from the grasp on: about as long, pictures hardly apart while it is carried and let go."""
    apart, config = [], DemonstratorConfig(size=48)
    for seed, one in of_family(BRING, range(40)):
        with contextlib.suppress(NoRoom):
            video, events, success = human_sketch(one, seed, config)
            names = {event.name: event.frame for event in events}
            assert success
            assert "contact" not in names
            drawn = video.views["third_person"].astype(int)
            assert names["release"] + 4 <= len(drawn) <= names["release"] + 13
            whole, all_events, fine = demonstrate(replace(one, begun=0), seed, config)
            if not fine or [event.name for event in all_events].count("contact") > 1:
                continue  # it slipped or something was in the way
            since = next(event.frame for event in all_events if event.name == "grasp")
            let_go = next(event.frame for event in all_events if event.name == "release") - since
            filmed = whole.views["third_person"].astype(int)
            assert abs(let_go - names["release"]) <= 12
            moved = np.abs(filmed[since + let_go] - filmed[since]).mean()
            apart.append(np.abs(drawn[names["release"]] - filmed[since + let_go]).mean() / moved)
    assert len(apart) > 8
    assert np.median(apart) < 0.4, apart


@pytest.mark.parametrize("kind", sorted(touched()))
def test_a_person_touches_it(kind):
    for seed in range(2000):
        one = drill(seed, seed)
        if one.family != TOUCH or one.things[0].kind.__name__ != kind:
            continue
        try:
            _, events, success = demonstrate(one, seed, pictures=False)
        except NoRoom:
            continue
        if success:
            assert "contact" in [event.name for event in events]
            return
    raise AssertionError(f"nobody could touch a {kind}")


@pytest.mark.parametrize("family", [TOUCH, BRING, *ACTED])
@pytest.mark.parametrize("stray", [0.0, 1.5])
def test_a_robot_does_it_with_physics_too(family, stray):
    done = []
    for seed, one in of_family(family, range(300), begun=False)[:12]:
        with contextlib.suppress(NoRoom):
            done.append(robot_episode(one, seed, BLIND, stray).success)
    assert len(done) > 4
    assert np.mean(done) > 0.8


@pytest.mark.parametrize("family", ACTED)
def test_a_person_does_it_and_an_expert_who_takes_over(family):
    shown, taken_over = [], []
    for seed, one in of_family(family, range(300, 600), begun=False)[:8]:
        with contextlib.suppress(NoRoom):
            shown.append(demonstrate(one, seed, pictures=False)[2])
            if (rest := midway_episode(one, seed, BLIND)) is not None:
                taken_over.append(rest.success)
    assert len(shown) > 4
    assert np.mean(shown) > 0.8
    assert taken_over
    assert np.mean(taken_over) > 0.5


def told(one):
    """What a drill asks for, in full."""
    things = [(t.name, t.kind.__name__, t.colour) for t in one.scene]
    moves = [(type(move).__name__, move.item, getattr(move, "at", ())) for move in one.script]
    return repr((one.family, things, moves, one.instructions, one.begun, one.free))


def test_sketched_drills_are_what_they_were_before_there_were_others():
    drawn = [told(drill(seed, which)) for seed in range(200) for which in range(THINGS)]
    assert hashlib.sha256("\n".join(drawn).encode()).hexdigest() == SKETCHED


def test_acted_drills_are_of_all_families():
    found = Counter(drill(seed, 0, begun=False).family for seed in range(2000))
    assert set(found) == set(SHARES)
    assert all(abs(found[family] / 2000 - share) < 0.03 for family, share in SHARES.items())


@pytest.mark.parametrize("family", ACTED)
def test_each_thing_of_a_scene_has_a_deed_of_its_own(family):
    for seed, _ in of_family(family, range(300), begun=False):
        drills = [drill(seed, which, begun=False) for which in range(THINGS)]
        scenes = [sorted((t.name, t.kind, t.colour) for t in one.scene) for one in drills]
        assert all(scene == scenes[0] for scene in scenes)
        assert len({(kind, colour) for _, kind, colour in scenes[0]}) == THINGS
        assert len({one.things[0].name for one in drills}) == THINGS
        assert all(one.hands == 1 for one in drills)
        assert all(thing.words in one.instructions[0] for one in drills for thing in one.things)


def shifts(one):
    """What is to be where it was not, in a drill."""
    parts = one.success.parts if isinstance(one.success, All) else (one.success,)
    return [part for part in parts if isinstance(part, Shifted)]


def test_words_say_which_way_and_always_the_same_way():
    """A side is named if and only if something goes there, or is turned there: others are shown in mirrors."""
    motions = {}
    for _, one in of_family(PUSH, range(4000), begun=False) + of_family(MOVE, range(4000), begun=False):
        (goal,), (words,) = shifts(one), one.instructions
        motions.setdefault(words, set()).add(goal)
        way, _, turned = words.partition(" and turn it ")
        assert ("left" in way, "right" in way) == (goal.by[1] > 1e-9, goal.by[1] < -1e-9)
        assert ("closer" in way, "away" in way) == (goal.by[0] < -1e-9, goal.by[0] > 1e-9)
        assert ("left" in turned, "right" in turned) == ((goal.turn or 0) > 0.4, (goal.turn or 0) < -0.4)
        least, most = (0.05, 0.12) if one.family == PUSH else (0.07, 0.16)
        assert least <= np.hypot(*goal.by) <= most
    assert len({goal.by for goals in motions.values() for goal in goals}) > 500
    assert all(len(goals) == 1 for goals in motions.values())


def test_no_deed_is_what_a_novel_task_asks_for():
    """No two things that one is about are in a scene, nothing to be raked gets closer, nothing pushed falls over."""
    novel = [{(t.kind.__name__, t.colour) for t in task(name).things} for name in split().novel]
    raked = {t.name for name in split().novel if task(name).family == "rake" for t in task(name).things}
    assert "red_block" in raked
    seen = set()
    for seed in range(4000):
        one = drill(seed, seed, begun=False)
        if one.family not in ACTED:
            continue
        looks = {(t.kind.__name__, t.colour) for t in one.scene}
        assert not any(len(looks & pair) > 1 for pair in novel)
        seen |= {goal.item for goal in shifts(one)} & raked
        assert all(goal.by[0] > -1e-9 for goal in shifts(one) if goal.item in raked)
        kinds = {thing.name: thing.kind for thing in one.things}
        for shove in (made for made in one.script if isinstance(made, Shove)):
            shape = shape_of(kinds[shove.item])
            assert not shape.round
            assert shape.height < 2.4 * (min(shape.sides) or shape.radius)
    assert len(seen) == len(raked) - 1  # all but the rake itself


def test_what_comes_first_can_still_be_seen():
    firsts = set()
    for _, one in of_family(THEN, range(1500), begun=False):
        first, last = one.things
        parts = one.success.parts if isinstance(one.success, All) else (one.success,)
        order = next((part.order for part in parts if isinstance(part, Pressed)), ())
        moved = [goal.item for goal in shifts(one)]
        assert first.name in moved or order[:1] == (first.name,)
        assert last.name in (*moved, *order) or InHand(last.name) in parts
        firsts.add(one.instructions[0].split()[0])
    assert firsts == {"Press", "Push", "Move"}


def alone(deed):
    """A world in which a deed is the task, and what puts a thing of it elsewhere."""
    env = SimEnv(
        Task(
            name="deed", family="deed", things=deed.things, foils=(), script=deed.script, success=deed.success,
            instructions=(deed.words,), free=deed.free,
        ),
        BLIND,
    )  # fmt: skip
    env.begin(0)
    world, item = env.world, deed.things[0].name

    def put(by, turn=0.0):
        joint, start = world.model.joint(item), world.start[item]
        heading = start.yaw + turn
        pos = start.pos + np.array([*by, 0.0]) if len(by) == 2 else by
        at = joint.qposadr[0]
        world.data.qpos[at : at + 7] = [*pos, np.cos(heading / 2), 0, 0, np.sin(heading / 2)]
        world.refresh()
        return deed.success.holds(world)

    return world, put


def test_a_thing_is_pushed_when_it_stands_where_it_was_to_get():
    deed = push(thing("red", block), "to the left")
    world, put = alone(deed)
    x, y = deed.success.by
    assert not put((0.0, 0.0))
    assert put((x, y))
    assert put((x + 0.025, y), turn=1.0)
    assert not put((x + 0.035, y))
    assert not put((x, -y))
    (shove,) = deed.script
    assert not put((x, y + 0.05))
    end = next(key for key in shove.keys(_Stage(world)) if key.event == "push").goals["main"].at
    assert (
        abs(end[1] - (world.start["red_block"].pos[1] + y)) < 0.05
    )  # from where it is now to the same place


class _Stage:
    """What a move looks at."""

    def __init__(self, world):
        self.world = world

    def limb(self, role):
        return "left"


def test_a_thing_is_moved_when_it_is_turned_too():
    deed = move(thing("red", block), "closer", " and turn it right")
    _, put = alone(deed)
    assert deed.success.turn < -0.4
    assert put(deed.success.by, deed.success.turn)
    assert not put(deed.success.by)
    assert not put(deed.success.by, -deed.success.turn)


@pytest.mark.parametrize("family", [LEAN, WAVE])
def test_nothing_leans_or_is_waved_over_by_itself(family):
    """Nor where somebody does the same to another thing of the scene."""
    tried = 0
    for seed, one in of_family(family, range(600), begun=False)[:6]:
        with contextlib.suppress(NoRoom):
            env = SimEnv(one, BLIND)
            env.begin(seed)
            assert not one.success.holds(env.world)
            expert = env.expert(steady=True)
            for _ in range(200):
                if env.advance(expert.act()):
                    break
            others = [drill(seed, which, begun=False) for which in range(THINGS)]
            done = {other.things[0].name for other in others if other.success.holds(env.world)}
            assert one.things[0].name in done
            assert len(done) == 1 or family == WAVE, "a hand may be beside two things at once"
            tried += 1
    assert tried > 2


def test_a_thing_that_is_held_upright_leans_in_no_drill():
    tried = 0
    for seed, one in of_family(LEAN, range(1500), begun=False):
        if "back" not in one.instructions[0] or tried > 4:
            continue
        with contextlib.suppress(NoRoom):
            env = SimEnv(one, BLIND)
            env.begin(seed)
            expert = env.expert(steady=True)
            names = []
            while "lean" not in names:
                if env.world.in_hand(one.things[0].name) and "lift" not in names:
                    assert not one.success.holds(env.world)
                assert not env.advance(expert.act()) or "lift" in names, "done before it was even lifted"
                names = [event.name for event in expert.events]
            tried += 1
    assert tried > 2


def test_leaning_is_told_by_its_words_and_never_over_anything():
    for seed, one in of_family(LEAN, range(3000), begun=False):
        pick, lean, _ = one.script
        assert pick.straight
        assert ("forward" in one.instructions[0], "back" in one.instructions[0]) == (
            lean.angle < 0,
            lean.angle > 0,
        )
        assert one.success.angle == abs(lean.angle)
        assert len(one.things) == 1, f"{seed}: pouring, which novel tasks ask for, is over something"


def test_a_thing_in_the_air_by_itself_is_not_held():
    deed = hold(thing("red", block), thing("blue", block), "over")
    world, put = alone(deed)
    place = world.base("blue_block").pos + deed.success.at
    assert 0.09 < deed.success.at[2] < 0.17
    assert not put(place)


def test_where_two_things_are_to_get_is_apart():
    """What is put down first does not stand where the second is to be."""
    checked = 0
    for seed, one in of_family(THEN, range(700), begun=False):
        goals = shifts(one)
        if len(goals) < 2:
            continue
        with contextlib.suppress(NoRoom):
            env = SimEnv(one, BLIND)
            env.begin(seed)
            ends = [env.world.start[goal.item].pos[:2] + goal.by for goal in goals]
            assert np.linalg.norm(ends[0] - ends[1]) > sum(env.world.shapes[g.item].radius for g in goals)
            checked += 1
    assert checked > 5


def test_a_persons_sketch_is_the_way_of_a_whole_video_to_its_contact():
    """The same first picture, contact at the same time, pictures hardly apart, and a moment after the contact."""
    apart, config = [], DemonstratorConfig(size=48)
    for seed, one in of_family(TOUCH, range(16)):
        try:
            sketch, events, success = human_sketch(one, seed, config)
        except NoRoom:
            continue
        whole, all_events, done = demonstrate(one, seed, config)
        if not done:
            continue  # something was in the way
        drawn, filmed = (video.views["third_person"].astype(int) for video in (sketch, whole))
        contact = next(event.frame for event in events if event.name == "contact")
        assert success
        late = next(event.frame for event in all_events if event.name == "contact")
        assert abs(late - contact) <= 1
        assert contact + 4 <= len(drawn) <= contact + 13
        assert np.array_equal(drawn[0], filmed[0])
        moved = np.abs(filmed[late] - filmed[0]).mean()
        apart.append(np.abs(drawn[contact] - filmed[late]).mean() / moved)
    assert len(apart) > 5
    assert np.median(apart) < 0.3, apart


def test_a_small_model_can_read_what_is_asked_for():
    model = tiny_model()
    words = HashedWords(model.video.text_dim, model.text_length)
    asked = {drill(seed, which, False).instructions[0] for seed in range(1500) for which in range(2)}
    longest = sorted(asked, key=lambda text: len(text.split()))[-40:]
    assert words.encode(tuple(longest)).shape[1] == model.text_length  # refuses what is longer


def test_slim_things_are_in_drills_that_are_acted_alone():
    slims = {slim(number).__name__ for number in range(SLIM)}
    assert not slims & {made_up(number).__name__ for number in range(COUNT)}

    def shown(begun):
        return [thing.kind.__name__ for seed in range(400) for thing in drill(seed, 0, begun).scene]

    share = np.mean([name in slims for name in shown(False)])
    assert 0.05 < share < 0.25
    assert not slims & set(shown(True))
    assert {shape_of(slim(number)).height > 0.05 for number in range(SLIM)} == {True, False}  # stand, or lie
