"""A mutator that knows the structure: digests are right, so every lie reaches the rules about fields.

A mutant is refused with an ArtifactError, or it is accepted; then an oracle of its own, which shares no code with the
checks, must find every offset in bounds. Any other exception fails, and so does one mutant that takes over 2 seconds.
"""

from __future__ import annotations

import json
import keyword
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from artifacts.assembling import canonical_text, put_together, table_of, take_apart
from artifacts.mutation import mutate
from artifacts.small_artifact import artifact_bytes, digest

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact import file as artifacts
from dslc.runtime.artifact import header_rules
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.plan_check import _Checker

ITEMSIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u64": 8, "u32": 4,
             "u16": 2, "u8": 1, "b1": 1}  # fmt: skip
Piece = tuple[str, str, bytes]
#: Rules of the interface that are asked after its digest.
LATER_RULES = ("low <= default <= high", "occurs twice", "a range [low, end) of an input")


def mutant(good: bytes, rng: random.Random) -> tuple[str, bytes]:
    """One artifact with one to three lies, digests right but where the lie is about them."""
    header, data = take_apart(good)
    pieces: list[Piece] = [(b["name"], b["kind"], data[b["name"]]) for b in header["blobs"]]
    what = rng.choice(("header", "interface", "plan", "plan", "table", "blobs", "text"))
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if what == "plan":
            index = rng.choice([i for i, p in enumerate(pieces) if p[1] == "plan"])
            try:
                plan = json.loads(pieces[index][2])
                names.append(mutate(plan, rng))
            except (ValueError, IndexError):
                break  # an earlier lie left nothing to change
            pieces[index] = (*pieces[index][:2], canonical_text(plan))
        elif what == "header":
            names.append(mutate(header, rng))
        elif what == "interface":
            names.append(mutate(header["interface"], rng))
        elif what == "blobs":
            a, b = rng.randrange(len(pieces)), rng.randrange(len(pieces))
            pieces[a], pieces[b] = (*pieces[a][:2], pieces[b][2]), (*pieces[b][:2], pieces[a][2])
            pieces[a] = (*pieces[a][:2], pieces[a][2] + rng.randbytes(rng.choice((0, 1, 64))))
    if what in ("plan", "blobs", "text"):
        header["blobs"] = table_of(pieces)
    if "interface" in header and rng.random() < 0.9:
        header["interface_sha256"] = digest(header["interface"])
    if what == "table":
        names.append(mutate(header["blobs"], rng))
    text = canonical_text(header)
    if what == "text":
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice((b"", b"[", b"}", b'"', b"1", b"-", b"\xc3", b"\0", b" ")) + text[at + 1 :]
    return f"{what}:{'+'.join(names)}", put_together(text, [p[2] for p in pieces])


def interface_holds(header: Mapping[str, Any]) -> None:
    """The oracle of the interface: what a caller and a generated module rely on."""
    interface = header["interface"]
    train = interface["train"] or {"inputs": [], "scalars": [], "metrics": []}
    dims = {d["name"]: d for d in interface["dims"]}
    assert (interface["name"], interface["model"]) == (header["name"], header["model"])
    assert all(d["low"] <= d["default"] <= d["high"] for d in dims.values())
    assert [d.get("batch") for d in dims.values()].count(True) <= 1
    inputs = [x["name"] for x in (*interface["inputs"], *train["inputs"], *train["scalars"])]
    results = [x["name"] for x in interface["results"]]
    for names in ([d["name"] for d in interface["dims"]], inputs, results, train["metrics"]):
        assert len(names) == len(set(names)) and all(n.isidentifier() and not keyword.iskeyword(n) for n in names)
    for name, (low, end) in {**interface.get("ranges", {}), **train.get("ranges", {})}.items():
        assert name in inputs and low <= end
    for tensor in (*interface["inputs"], *interface["results"], *train["inputs"]):
        assert tensor["dtype"] in ITEMSIZES and all(type(n) in (int, str) for n in tensor["shape"])
    for program in header["programs"]:
        assert all(dims[name]["low"] <= size <= dims[name]["high"] for name, size in program["sizes"].items())
        assert interface["train"] is not None or program["entry"] in ("init", "predict")
    assert type(train.get("lr", 0.0)) is float and all(type(x["default"]) is float for x in train["scalars"])


def ports_hold(header: Mapping[str, Any], program: Mapping[str, Any], plan: dict[str, Any]) -> None:
    """The oracle of ports: a caller's arrays have the names, dtypes and element counts of the plan's buffers."""
    interface, entry = header["interface"], program["entry"]
    train = interface["train"] or {"inputs": [], "metrics": []}
    taken = {t["name"]: t for t in (*interface["inputs"], *(train["inputs"] if entry != "predict" else ()))}
    given = {t["name"]: t for t in interface["results"]}
    for name, _, buffer in plan["inputs"]:
        assert plan["buffers"][buffer][2] == taken[name]["dtype"]
        assert len(plan["buffers"][buffer][3]) == len(taken[name]["shape"])
    for name, kind, buffer in plan["outputs"]:
        _, _, dtype, shape = plan["buffers"][buffer]
        if kind == "result":
            assert entry == "predict" and dtype == given.pop(name)["dtype"]
        elif kind in ("loss", "metric"):
            assert entry != "predict" and shape == [] and dtype in ("f32", "f64")
            assert name == "loss" if kind == "loss" else name.removeprefix("metric.") in train["metrics"]
    assert entry != "predict" or not given


def in_bounds(artifact: Artifact) -> None:
    """The oracle: plain arithmetic over the raw JSON of what was accepted."""
    interface_holds(artifact.header)
    for program in artifact.header["programs"]:
        plan = json.loads(bytes(artifact.blob(program["plan"])))
        sizes = {"state": artifact.header["state"]["bytes"]} | {
            region: program[f"{region}_bytes"] for region in ("context", "io", "work")
        }
        count = len(plan["buffers"])
        for region, offset, dtype, shape in plan["buffers"]:
            size = ITEMSIZES[dtype]
            for dim in shape:
                assert dim >= 0
                size *= dim
            assert offset >= 0 and offset % ITEMSIZES[dtype] == 0 and offset + size <= sizes[region]
        for _, _, buffer in [*plan["inputs"], *plan["outputs"]]:
            assert 0 <= buffer < count
        ports_hold(artifact.header, program, plan)
        for row in plan["instructions"]:
            indices = row[3] + row[4] if row[0] == "reference" else row[1:3] if row[0] == "copy" else row[1:2]
            assert row[0] in ("reference", "copy", "fill", "bulk_begin", "bulk_end", "record", "wait")
            assert row[0] not in ("reference", "copy", "fill") or all(0 <= i < count for i in indices)
        for buffer, blob, offset in plan["constants"]:
            region, _, dtype, shape = plan["buffers"][buffer]
            size = ITEMSIZES[dtype]
            for dim in shape:
                size *= dim
            assert region == "work" and offset + size <= len(artifact.blob(blob))


def run(count: int, seed: int) -> Counter[str]:
    rng, good, seen = random.Random(seed), artifact_bytes(), Counter[str]()
    for case in range(count):
        name, data = mutant(good, rng)
        start = time.process_time()
        try:
            artifact = Artifact.of_bytes(data)
            artifact.verify()
        except ArtifactError as error:
            assert error.code in ("R301", "R302"), (seed, case, name)
            assert error.place and error.render(), (seed, case, name)
            seen["refused"] += 1
            if name.startswith("interface:"):
                seen["digest" if "interface_sha256" in error.place else "schema"] += 1
                for rule in LATER_RULES:
                    seen[rule] += rule in error.message
        else:
            in_bounds(artifact)
            seen["accepted"] += 1
        assert time.process_time() - start < 2.0, (seed, case, name)
        seen[name.partition(":")[0]] += 1
    return seen


def test_mutants(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    seen = run(fuzz_count(20_000), fuzz_seed)
    print(dict(seen))
    assert seen["refused"] > 5 * seen["accepted"] > 0
    assert all(seen[what] > 0 for what in ("header", "interface", "plan", "table", "blobs", "text"))


def test_lies_about_the_interface_reach_the_rules_after_its_digest() -> None:
    seen = run(2_000, seed=5)
    print(dict(seen))
    assert all(seen[rule] > 0 for rule in LATER_RULES) and 0 < 5 * seen["digest"] < seen["schema"]


def test_the_mutants_can_find_missing_rules_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "check_ports", lambda *_, **__: None)
    with pytest.raises((AssertionError, KeyError)):
        run(3_000, seed=5)


@pytest.mark.parametrize("planted", ["_check_dims", "_check_names"])
def test_the_mutants_can_find_a_missing_rule_of_the_interface(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    monkeypatch.setattr(header_rules, planted, lambda _: None)
    with pytest.raises(AssertionError):
        run(3_000, seed=5)


@pytest.mark.parametrize("planted", ["_buffer", "_at"])
def test_the_mutants_can_find_a_missing_check(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """Control: without the check of regions, or of indices, a mutant must get through to the oracle or crash."""
    if planted == "_buffer":
        monkeypatch.setattr(_Checker, "_buffer", lambda *_: None)
    else:
        monkeypatch.setattr(
            _Checker, "_at", lambda self, _, index: self.plan.buffers[min(index, len(self.plan.buffers) - 1)]
        )
    with pytest.raises((AssertionError, IndexError)):
        run(3_000, seed=5)
