"""A history: everything that will happen to an application, drawn from one seed and written down before it begins.

A step is a few numbers and names, so any part of a history can be run again without the rest: that is how a failure is
made small.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from stateflow.catalog.model import Guarantee
from stateflow.failpoints import POINTS, phase_of

Profile = Literal["crash", "scale", "torn", "image", "recreate", "disk", "time", "switch"]
"""What a history is about, beside crashes: a new partition count, late EndTxn requests, images and trimmed changelogs,
topics that are created again, real databases on disk, event time, changes of guarantee and commit mode."""

Application = Literal["numbers", "ledger", "minutes", "traffic"]
"""What runs: see ``applications``, ``minutes`` and ``traffic``."""

PROFILES: tuple[Profile, ...] = get_args(Profile)
_WEIGHTS = (34, 12, 12, 14, 8, 1, 11, 8)
WORKERS = 3
_KEYS = (5, 5, 5, 5, 300)
_POLLS = (1, 2, 3, 10, 500)
_IDLE_MS = (500, 5_000, 5_000)
_PACES_MS = (0, 0, 5, 40)
_SLICES = (1, 2, 5, 512)
_SLICE_MS = (0, 0, 4, 60)
_MANY_TASKS = 0.01


class Step(NamedTuple):
    """One thing that happens. What the fields mean depends on the verb; see ``simulate_steps``."""

    verb: str
    worker: int = 0
    amount: int = 0
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verb} worker={self.worker} amount={self.amount} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a seed stands for."""

    seed: int
    profile: Profile
    application: Application
    guarantee: Guarantee
    paranoid: bool
    opens_slowly: bool
    """Tasks open beside the poll loop, a few calls at a time, so that a rebalance can meet a restore."""
    commits_slowly: bool
    """What commits wait for goes on beside the poll loop, a few calls at a time, and so does the loop."""
    static_members: bool
    delays: bool
    """Records are on their way for a while before they are in the log."""
    sources: int
    partitions: int
    keys: int
    commit_ms: int
    commit_min_ms: int
    """The least that a worker with time to spare lets pass between two commits."""
    flush_ms: int
    polls: tuple[int, ...]
    """Records per poll, of one life of a worker after the other."""
    idle_ms: int
    """Silence after which an input at its end is idle."""
    pace_ms: int
    """What the application takes for one operation."""
    slices: tuple[int, ...]
    """The most records of a slice, of one life of a worker after the other."""
    slice_ms: int
    """What a slice takes at most, whatever is in it. Turns of a worker end after 10 ms here."""
    is_silent: bool
    """The second topic says nothing at first."""
    writers: tuple[int, ...]
    """Writers that the tasks of a worker share, 0 for one per task; of one life of a worker after the other."""
    steps: tuple[Step, ...]
    verb: str = ""
    """The verb of the study of operators that it happens to, in the place of ``application``."""

    def only(self, steps: Sequence[Step]) -> History:
        """The same with other steps."""
        return replace(self, steps=tuple(steps))


def generate(seed: int, profile: Profile | None = None) -> History:
    """The history of a seed; the same one every time, on every machine."""
    rng = random.Random(f"history-{seed}")  # noqa: S311 - nothing secret: it must be repeatable
    drawn = rng.choices(PROFILES, _WEIGHTS)[0]
    chosen = profile or drawn
    more = random.Random(f"production-{seed}")  # noqa: S311 - so that older draws stay as they are
    has_many = chosen == "crash" and more.random() < _MANY_TASKS
    exactly_once = chosen == "torn" or rng.random() < 0.75
    application = "numbers" if has_many else _application(rng.random(), chosen)
    steps = tuple(_steps(rng, chosen))
    has_bulk = any(step.verb == "bulk" for step in steps)
    return History(
        seed=seed,
        profile=chosen,
        application=application,
        guarantee="exactly-once" if exactly_once else "at-least-once",
        paranoid=exactly_once and chosen != "torn" and rng.random() < 0.15,
        opens_slowly=rng.random() < 0.3,
        commits_slowly=chosen != "switch" and random.Random(f"commits-{seed}").random() < 0.5,  # noqa: S311 - its own
        static_members=rng.random() < 0.3,
        delays=more.random() < 0.7 or chosen == "torn",
        sources=30 if has_many else rng.choice((1, 2, 2)),
        partitions=40 if has_many else rng.choice((1, 2, 2, 3)),
        keys=300 if has_many else more.choice(_KEYS),
        # Between two turns nothing is uncommitted then, so that a life at least once is exact unless a fault strikes.
        commit_ms=rng.choice((0, 0, 15)) * (chosen != "switch"),
        commit_min_ms=random.Random(f"pace-{seed}").choice((2, 15)),  # noqa: S311 - of its own: see above
        flush_ms=rng.choice((0, 20, 30_000)),
        polls=tuple(more.choice(_polls(has_bulk=has_bulk, has_many=has_many)) for _ in range(4)),
        idle_ms=more.choice(_IDLE_MS),
        pace_ms=more.choice(_PACES_MS),
        is_silent=more.random() < 0.5,
        slices=(512,) if has_many or has_bulk else tuple(more.choice(_SLICES) for _ in range(4)),
        slice_ms=more.choice(_SLICE_MS) * (not has_many and not has_bulk),
        writers=_writers(random.Random(f"writers-{seed}")),  # noqa: S311 - of its own: see above
        steps=steps,
    )


def _writers(rng: random.Random) -> tuple[int, ...]:
    """Some histories have one writer per task throughout, some share them throughout, in others it changes."""
    return tuple(rng.choice(rng.choice(((0,), (1,), (2,), (0, 1), (0, 1, 2)))) for _ in range(4))


def _polls(*, has_bulk: bool, has_many: bool) -> tuple[int, ...]:
    """Sizes that bring such a history to its end in time: many tasks tell many others of event time."""
    return _POLLS[-1:] if has_many else _POLLS[-2:] if has_bulk else _POLLS


def _application(draw: float, profile: Profile) -> Application:
    if profile == "time":
        return "traffic"
    if draw < 0.3:
        return "ledger"
    # An eventual changelog must be complete before a repartition: a history of crashes and repartitions would be
    # one of refusals.
    return "minutes" if draw < 0.4 and profile in ("crash", "torn", "image") else "numbers"


# --- the steps ----------------------------------------------------------------------------------------------

_COMMON: tuple[tuple[str, int], ...] = (
    ("send", 6),
    ("turn", 9),
    ("strike", 9),
    ("thaw", 2),
    ("stop", 1),
    ("elapse", 2),
    ("compact", 2),
    ("retain", 1),
    ("lose", 1),
    ("backup", 1),
    ("reinstate", 1),
)
_EXTRA: dict[Profile, tuple[tuple[str, int], ...]] = {
    "crash": (("ahead", 1), ("era", 1)),
    "scale": (("scale", 2), ("ahead", 1)),
    "torn": (("tear", 14),),
    "image": (("image", 5), ("trim", 3), ("collect", 1)),
    "recreate": (),
    "disk": (("corrupt", 4), ("scale", 1), ("ahead", 1)),
    "time": (("send", 6), ("turn", 6), ("era", 1), ("bulk", 1), ("speak", 1), ("lull", 4), ("scale", 1)),
    "switch": (("guarantee", 4), ("mode", 3), ("turn", 6), ("ahead", 1), ("era", 1)),
}
_STRIKES = ("kill", "kill", "kill", "raise", "raise", "freeze", "freeze")
_RECREATED = ("changelog", "changelog", "source", "rekeyed", "past")
_PHASES = (
    *("startup", "open", "open", "restore", "restore", "process", "process"),
    *("commit", "commit", "commit", "commit", "flush", "purge", "handover", "handover", "stop"),
)
_PHASES_OF: dict[Profile, tuple[str, ...]] = {
    **dict.fromkeys(PROFILES, _PHASES),
    "torn": (*_PHASES, "takeover", "takeover", "takeover"),
    "image": (*_PHASES, "image", "collect", "install"),
}
_DELAYS_MS = (1, 10, 1_000, 20_000, 50_000, 70_000, 2 * 86_400_000)


def _steps(rng: random.Random, profile: Profile) -> list[Step]:
    verbs, weights = zip(*_COMMON, *_EXTRA[profile], strict=True)
    count = rng.randint(5, 16)
    steps = [Step("send", 0, rng.randint(2, 6), "plain"), Step("turn", rng.randrange(WORKERS), 2)]
    for _ in range(count):
        steps += _scene(rng, rng.choices(verbs, weights)[0], profile)
    if profile == "recreate":
        steps.append(Step("turn", rng.randrange(WORKERS), 4))
        steps.append(Step("recreate", rng.randrange(WORKERS), rng.randrange(3), rng.choice(_RECREATED)))
    return steps


def _scene(rng: random.Random, verb: str, profile: Profile) -> list[Step]:
    """A step, and what it takes for it to have an effect."""
    if verb == "lull":  # long enough for inputs to be idle, and not for workers to be taken for dead
        asleep = [Step("elapse", 0, rng.choice((600, 6_000, 20_000))), *_round(rng)]
        return [*asleep, _step(rng, "send", profile), *_round(rng), _step(rng, "send", profile)]
    step = _step(rng, verb, profile)
    if verb not in ("strike", "tear", "corrupt", "trim"):
        return [step]
    if verb == "corrupt":  # without more operations: what they read would meet the damage before a scan does
        busy = [Step("turn", step.worker, 3), _step(rng, "send", profile), Step("turn", step.worker, 4)]
        return [*busy, step, Step("elapse", 0, 50_000), Step("turn", step.worker, 4)]
    if verb == "trim":  # behind an image that is not of this moment
        image = [Step("turn", step.worker, 3), Step("image", step.worker)]
        return [*image, _step(rng, "send", profile), Step("turn", step.worker, 3), step]
    if profile == "image" and verb == "strike" and rng.random() < 0.5:
        place = rng.choice(("before objects.put", "after objects.put", "before objects.delete"))
        struck = Step("strike", step.worker, rng.randint(1, 3), f"{rng.choice(('kill', 'freeze'))}@{place}")
        return [
            struck,
            Step(rng.choice(("image", "image", "collect")), step.worker),
            *_aftermath(rng, struck, profile),
        ]
    then = [_step(rng, "send", profile), Step("turn", step.worker, rng.randint(2, 6))]
    return [step, *then, *_aftermath(rng, step, profile)]


def _round(rng: random.Random) -> list[Step]:
    """Every worker gets its turn."""
    return [Step("turn", worker, rng.randint(1, 3)) for worker in range(WORKERS)]


def _aftermath(rng: random.Random, struck: Step, profile: Profile) -> list[Step]:
    """Whoever hangs is often taken for dead: another takes over, goes on, and then it comes back."""
    if "freeze" not in struck.detail or rng.random() < 0.3:
        return []
    other = (struck.worker + rng.randint(1, WORKERS - 1)) % WORKERS
    return [
        Step("elapse", 0, rng.choice((46_000, 50_000, 70_000))),
        Step("turn", other, rng.randint(3, 6)),
        *([_step(rng, "send", profile), Step("turn", other, 2)] if rng.random() < 0.5 else []),
        Step("thaw", struck.worker),
    ]


def _step(rng: random.Random, verb: str, profile: Profile) -> Step:
    worker = rng.randrange(WORKERS)
    match verb:
        case "send":
            return Step(verb, rng.randrange(1 << 16), rng.randint(1, 6), _how_sent(rng))
        case "turn":
            return Step(verb, worker, rng.randint(1, 4))
        case "strike":
            return _strike(rng, worker, _PHASES_OF[profile])
        case "elapse":
            return Step(verb, 0, rng.choices(_DELAYS_MS, (6, 4, 4, 2, 3, 2, 1))[0])
        case "scale":
            return Step(verb, worker, rng.randint(1, 4), rng.choice(("", "", "kill", "raise")))
        case "tear":
            return Step(verb, worker, rng.randint(1, 10), str(rng.choice((0, 1, 2, 4, 1000))))
        case "lose" | "reinstate" | "corrupt" | "guarantee" | "mode" | "speak":
            return Step(verb, worker)
        case "bulk":
            return Step(verb, rng.randrange(1 << 16), rng.choice((50, 1_000)))
        case _:
            return Step(verb, worker, rng.randrange(4))


def _how_sent(rng: random.Random) -> str:
    return rng.choices(("plain", "committed", "aborted", "open", "close-open"), (6, 2, 2, 1, 1))[0]


def _strike(rng: random.Random, worker: int, phases: Sequence[str]) -> Step:
    """A fault at the n-th place that is reached, or at a failpoint by its name."""
    fault = rng.choice(_STRIKES)
    if rng.random() < 0.4:
        phase = rng.choice(phases)
        point = rng.choice([name for name in POINTS if phase_of(name) == phase])
        return Step("strike", worker, rng.choice((1, 1, 2, 3)), f"{fault}@{point}")
    return Step(
        "strike", worker, rng.choice((rng.randint(1, 8), rng.randint(1, 25), rng.randint(1, 80))), fault
    )
