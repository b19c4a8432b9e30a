"""Tunes a model: measures its problems on a GPU, those first that take the most time, until the budget is used up.

Measured times change what a build fuses, recomputes and runs at once, so a build that obeys them may pose other
problems. These are listed and measured, too, until none is missing. What the budget does not reach keeps its default. A
result is stored as soon as it is known, so a tuning that was stopped goes on with the rest. One problem is measured
however small the budget is, so each run gets further.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dslc.base.cache import Cache
from dslc.base.errors import BuildError, EnvironmentFault
from dslc.base.version import VERSION
from dslc.compiler.check.model import Checked
from dslc.compiler.codegen.targets import ARCHITECTURES
from dslc.compiler.ir.choice import NO_CHOICES, Choice, Choices
from dslc.compiler.lock.choices import Asked, Tuned
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.options import Options
from dslc.compiler.toolchain.jobs import sources_digest
from dslc.runtime.artifact.targets import choose_target
from dslc.tune.candidate import recipe
from dslc.tune.client import Client, Gone, Refused
from dslc.tune.judge import Judged, Opening, Trial, judge
from dslc.tune.outcome import Outcome
from dslc.tune.problems import Problem, gaining_first, problems
from dslc.tune.registry import Registry
from dslc.tune.rules import allowed, checks_seconds, joined, ranked, rounds_seconds
from dslc.tune.settings import Settings
from dslc.tune.supply import Supplied, Supply, compile_comparer
from dslc.tune.versions import capability_of, driver_version, library_versions

_FIRST: Final = 300.0  # seconds that the compilers of a tuning's first problem may take
_SHOWN: Final = 2  # reasons, if all ways were rejected
_UNLISTED: Final = "cannot list its ways"  # in a block's rejected ways, of a library

Progress = Callable[[str, int, int], None]


def tune(
    checked: Checked, options: Options, settings: Settings, cache: Cache, *, earlier: Lock | None = None,
    keys: Set[str] | None = None, progress: Progress | None = None, begun: float | None = None,
    client: Callable[[dict[str, Any]], Client] = Client,
) -> Outcome:  # fmt: skip
    """Measure the problems of a model for the GPU of ``settings``. ``options.target`` is replaced by the GPU's own.
    ``earlier``: the lock so far, whose text is kept if a new measurement says the same. ``keys``: of the problems to
    measure; None: all. ``begun``: the monotonic time when the budget began; None: now.

    An interrupt ends it with what was measured by then. Raises BuildError, and EnvironmentFault R201 without a GPU.
    """
    now = time.monotonic() if begun is None else begun
    tuning = _Tune(checked, options, settings, cache, earlier or Lock(), keys, progress or (lambda *_: None), now)
    return tuning.run(client)


class _Tune:
    def __init__(
        self, checked: Checked, options: Options, settings: Settings, cache: Cache, earlier: Lock,
        keys: Set[str] | None, progress: Progress, begun: float,
    ) -> None:  # fmt: skip
        self._checked, self._options, self._settings = checked, options, settings
        self._cache, self._earlier, self._keys, self._progress = cache, earlier, keys, progress
        self._begun = begun
        self._kept = 0.0  # seconds that are needed after the measurements
        self._others, self._done = 0.0, 0  # seconds of measured problems without their rounds; their number
        self._hung: dict[str, set[str]] = {}  # by op the engines of libraries that did not end
        self._tried = False  # the compilers of a problem have ended

    @property
    def _left(self) -> float:
        return self._settings.budget - (time.monotonic() - self._begun)

    def run(self, make: Callable[[dict[str, Any]], Client]) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="dslc-tune-") as name:
            folder = Path(name)
            self._progress("opening the GPU", 0, 1)
            with make({"gpu": self._settings.gpu}) as client:
                gpu = client.start()
                capability = capability_of(gpu["target"])
                chosen = choose_target(ARCHITECTURES, capability)
                if chosen is None:
                    raise EnvironmentFault(
                        "R202",
                        f"dslc has no code for the {gpu['name']}, which is {gpu['target']}",
                        place=f"gpu:{self._settings.gpu}",
                        help=f"use a GPU of one of these architectures, or a newer one: {', '.join(ARCHITECTURES)}",
                    )
                self._target, self._through_ptx = chosen.target, chosen.through_ptx
                self._gpu = f"{gpu['name'].replace(',', ' ')}, {gpu['sms']} SMs, {chosen.target}"
                self._client, self._folder = client, folder
                self._driver = driver_version(gpu["driver"])
                self._bus = gpu["bus"]
                with ThreadPoolExecutor(1) as pool:  # while the problems are listed
                    self._comparer = pool.submit(compile_comparer, chosen.target, self._cache, folder)
                    return self._measured()

    def _measured(self) -> Outcome:
        outcome = Outcome(self._gpu, self._target)
        registry = Registry(self._cache, self._fields())
        waiting: list[Problem] = []
        try:
            self._progress("finding the problems", 0, 1)
            posed = self._listed()
            if self._keys is not None and not self._keys <= {problem.key for problem in posed}:
                posed = self._posed_by(self._earlier)
            while True:
                wanted = {p.key: p for p in posed if self._keys is None or p.key in self._keys}
                new = [problem for key, problem in wanted.items() if key not in outcome.calls]
                waiting += gaining_first(new, self._target)
                outcome.calls = {
                    **dict.fromkeys(outcome.calls, 0),
                    **{key: problem.calls for key, problem in wanted.items()},
                }
                if not waiting:
                    break
                self._measure(registry, waiting, outcome)
                if self._keys is None and not outcome.left:
                    posed = self._posed_by(self._earlier.merged(outcome.blocks))
        except KeyboardInterrupt:
            outcome.interrupted = True
            outcome.left += [problem.key for problem in waiting]
        except BuildError as error:
            if error.code != "E0609" or error.place is None:
                raise
            outcome.refused[error.place] = error.message  # by an earlier block that was not measured again
        outcome.tuned, outcome.found = registry.tuned, registry.found
        outcome.restarts = self._client.starts - 1
        outcome.seconds = time.monotonic() - self._begun
        return outcome

    def _listed(self) -> list[Problem]:
        """The problems of a build without measurements. Those of a build that obeys take about as long to list, so this
        time is kept for them."""
        begun = time.monotonic()
        found = self._posed(NO_CHOICES)
        self._kept = time.monotonic() - begun
        return found

    def _posed(self, choices: Choices) -> list[Problem]:
        return problems(self._checked, replace(self._options, target=self._target), self._target, choices)

    def _posed_by(self, lock: Lock) -> list[Problem]:
        """The problems of a build that obeys a lock: with the shipped tables, and without them (``--locked``)."""
        from dslc.compiler.lock.table import table_for

        table = table_for(vendor=self._options.provider == "vendor").on(self._gpu)
        mine = lock.on(self._gpu)
        with_table = Tuned(self._gpu, mine, table, None).choices
        asked = Asked(with_table.ways)
        found = {p.key: p for p in self._posed(replace(with_table, ways=asked))}
        if asked.keys_asked & with_table.ways.keys() - {block.key for block in mine.blocks}:  # the table said something
            for problem in self._posed(Tuned(self._gpu, mine, Lock(), None).choices):
                found.setdefault(problem.key, replace(problem, calls=0))
        return list(found.values())

    def _measure(self, registry: Registry, waiting: list[Problem], outcome: Outcome) -> None:
        """Measure the problems in order; those that are done are taken out of ``waiting``."""
        missing = [p for p in waiting if self._settings.again or registry.stored(p.key) is None]
        variants = self._settings.mode != "off"
        with Supply(missing, self._target, self._cache, self._folder, variants=variants) as supply:
            while waiting:
                problem, known = waiting[0], len(outcome.calls)
                self._progress(problem.key, known - len(waiting), known)
                if problem in missing and self._left <= 0 and self._tried:
                    outcome.left.append(problem.key)
                else:
                    self._one(registry, supply, problem, waiting, outcome)
                waiting.pop(0)

    def _one(
        self, registry: Registry, supply: Supply, problem: Problem, waiting: Sequence[Problem], outcome: Outcome
    ) -> None:
        try:
            block = registry.find_or_register(
                problem.key, lambda: self._tuned(supply, problem, waiting), again=self._settings.again
            )
        except TimeoutError:
            outcome.left.append(problem.key)
        except Refused as refused:
            outcome.refused[problem.key] = str(refused)
        else:
            before = self._earlier.get(problem.key, self._gpu)
            limit = self._settings.limit
            unlisted = [text for text in block.rejected if _UNLISTED in text]
            for text in unlisted:
                outcome.unlisted[text] = outcome.unlisted.get(text, 0) + 1
            vendor = problem.vendor and not unlisted
            outcome.blocks.append(block if before is None else joined(before, block, limit, vendor=vendor))

    def _tuned(self, supply: Supply, problem: Problem, waiting: Sequence[Problem]) -> Block:
        """Measure a problem. Refused, or TimeoutError if the budget ends first."""
        begun = time.monotonic()
        supplied = supply.get(problem, max(0.0 if self._tried else _FIRST, self._left))
        self._tried = True
        if supplied is None:
            raise Refused("no kernel computes it")
        lock = self._cache.claim("tuning_gpu", (self._bus,))
        with lock, lock:
            if not lock.take(max(0.0, self._left)):
                raise TimeoutError
            trials, default, libraries, unlisted = self._trials(supply, supplied)
            others = self._others / self._done if self._done else 0.0
            left = self._left - self._kept
            share = rounds_seconds(left, len(waiting), others, len(trials))
            checks = checks_seconds(left, problem.weight, sum(each.weight for each in waiting))
            opening = Opening(
                supplied.reference, self._comparer.result(), self._target, self._through_ptx,
                self._settings.deterministic,
            )  # fmt: skip
            hung = self._hung.setdefault(problem.node.op.name, set())
            judged = judge(self._client, opening, trials, share, hung, checks)
        self._others += time.monotonic() - begun - judged.seconds
        self._done += 1
        block = self._block(problem, judged, default, libraries)
        return replace(block, default=None, rejected=(unlisted, *block.rejected)) if unlisted else block

    def _trials(self, supply: Supply, supplied: Supplied) -> tuple[list[Trial], Choice, str, str]:
        """All candidates, the choice of a build without a lock, the versions of the libraries, and why the library
        that such a build calls lists no ways; it then makes the choice of a build without a lock, which is not known,
        and the own default stands for it."""
        own = in_order([], supplied.own, supplied.plain)
        if supplied.library is None or (self._settings.mode == "off" and not supplied.called):
            return own, supplied.plain, "", ""
        limit = self._settings.limit
        provider = supplied.library.choice.provider
        self._client.start()
        try:
            answer = self._client.ask(
                "algorithms", path=str(supplied.library.path), limit=limit, deterministic=self._settings.deterministic
            )
        except Gone as gone:
            answer = {"refused": str(gone)}
        if answer.get("refused"):
            if not own:
                raise Refused(f"{provider} {_UNLISTED}: {answer['refused']}")
            unlisted = f"{provider} {_UNLISTED}: {answer['refused']}"
            return own, supplied.plain, "", unlisted if supplied.called else ""
        found = [Choice(provider, text, workspace) for text, workspace in answer["ways"]]
        chosen = Choice(provider, *answer["default"])
        default = chosen if supplied.called else supplied.plain
        if self._settings.mode == "off":
            found, own = [], []
        trials = []
        for choice in dict.fromkeys((chosen, *found)):
            if choice == default or allowed(choice, limit):
                made = recipe(supplied.problem.node, self._target, True, choice)
                assert made is not None, "a library computes it"
                trials.append(Trial(choice, supply.write(made, ())))
        return in_order(trials, own, default), default, f"{provider} {answer['version']}", ""

    def _block(self, problem: Problem, judged: Judged, default: Choice, libraries: str) -> Block:
        ways = ranked(judged.times, default, self._settings.limit)
        if not ways:
            raise Refused("; ".join(judged.rejected[:_SHOWN]) or "no way needs so little workspace")
        seconds = {way.choice: way for way in judged.times}
        winner = ways[0].choice
        versions = [*([libraries] if libraries else []), f"driver {self._driver}", f"dslc {VERSION}"]
        return Block(
            problem.key, self._gpu, ways, seconds.get(default), judged.spreads[winner], judged.errors[winner],
            tuple(judged.rejected), ", ".join(versions),
        )  # fmt: skip

    def _fields(self) -> tuple[str, ...]:
        """Everything that a measured block depends on besides the problem."""
        settings = self._settings
        return (
            VERSION, sources_digest(), self._gpu, self._driver, library_versions(), settings.mode,
            str(settings.limit), str(settings.deterministic), str(self._options.provider == "vendor"),
        )  # fmt: skip


def in_order(library: Sequence[Trial], own: Sequence[Trial], default: Choice) -> list[Trial]:
    """The default way first, then those of the library, which says its best ones first, and own ones in turns: if the
    time does not suffice for all, the best ones are tried."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(library, own))
    return sorted(filter(None, turns), key=lambda trial: trial.choice != default)
