"""A plan takes and gives what its entry promises: each rule refuses at its port, and what is promised is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from artifacts import small_artifact
from artifacts.assembling import canonical_text, put_together, table_of, take_apart

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.plan import Buffer, Plan, Port, Scalar
from dslc.runtime.artifact.port_check import check_ports

#: Written down once more: which entry may have outputs of which kinds.
KINDS = {
    "init": set[str](),
    "accumulate_step": {"loss", "metric"},
    "train_step": {"loss", "metric", "flags", "scale", "skipped"},
    "update_step": {"flags", "scale", "skipped"},
    "eval_step": {"partial.sum", "partial.max", "partial.min", "count"},
    "eval_finish": {"loss", "metric"},
    "predict": {"result"},
}
ONE = Buffer("io", 512, "f32", ())
#: A port of each kind that is right, and its buffer.
RIGHT = {
    "result": (Port("output", "result", 0), Buffer("io", 256, "f32", (4, 2))),
    "loss": (Port("loss", "loss", 0), ONE),
    "metric": (Port("metric.accuracy", "metric", 0), ONE),
    "flags": (Port("nonfinite", "flags", 0), Buffer("io", 512, "u8", (1,))),
    "scale": (Port("scale", "scale", 0), ONE),
    "skipped": (Port("skipped", "skipped", 0), replace(ONE, dtype="i64")),
    "count": (Port("count", "count", 0), replace(ONE, dtype="f64")),
    "partial.sum": (Port("loss", "partial.sum", 0), Buffer("io", 512, "f64", (3,))),
    "partial.max": (Port("loss", "partial.max", 0), Buffer("io", 512, "f64", ())),
    "partial.min": (Port("loss", "partial.min", 0), Buffer("io", 512, "f64", (2, 2))),
}


def plan(**given: Any) -> Plan:
    empty: dict[str, Any] = dict.fromkeys(("buffers", "inputs", "outputs", "scalars", "constants", "instructions"), ())
    return Plan(**{**empty, "names": small_artifact.WHERE, **given})


def why_not(made: Plan, entry: str, train: bool = True) -> str | None:
    """Place and rule of the refusal; None if the plan is accepted."""
    header = small_artifact.header()
    if not train:
        header["interface"]["train"] = None
    try:
        check_ports(made, entry, {"B": 4} if entry != "init" else {}, header, place="here")
    except ArtifactError as error:
        assert error.code == "R301" and error.help
        return f"{error.place}: {error.message}"
    return None


def giving(port: Port, buffer: Buffer, entry: str) -> Plan:
    """A plan with this output; a prediction always gives its result, too."""
    result, place = RIGHT["result"]
    if entry == "predict" and port.kind != "result":
        return plan(buffers=(place, buffer), outputs=(result, replace(port, buffer=1)))
    return plan(buffers=(buffer,), outputs=(port,))


@pytest.mark.parametrize("entry", KINDS)
@pytest.mark.parametrize("kind", RIGHT)
def test_an_entry_has_outputs_of_its_kinds_alone(entry: str, kind: str) -> None:
    found = why_not(giving(*RIGHT[kind], entry), entry)
    if kind in KINDS[entry]:
        assert found is None
    else:
        assert found is not None and f"{entry} has no output of kind {kind}" in found


WRONG = [
    ("result", Port("other", "result", 0), None, "is not a result"),
    ("result", None, Buffer("io", 256, "f32", (3, 2)), "f32[4, 2]"),
    ("result", None, Buffer("io", 256, "f32", (4, 2, 1)), "f32[4, 2]"),
    ("result", None, Buffer("io", 256, "f16", (4, 2)), "f32[4, 2]"),
    ("loss", Port("lost", "loss", 0), None, "named `loss`"),
    ("loss", None, replace(ONE, dtype="i64"), "one f64 or f32"),
    ("loss", None, replace(ONE, shape=(1,)), "one f64 or f32"),
    ("metric", Port("metric.other", "metric", 0), None, "is not a metric"),
    ("metric", None, replace(ONE, dtype="i32"), "one f64 or f32"),
    ("metric", None, replace(ONE, shape=(2,)), "one f64 or f32"),
    ("flags", Port("finite", "flags", 0), None, "`nonfinite`"),
    ("flags", None, Buffer("io", 512, "f32", (1,)), "u8[1] or b1[1]"),
    ("flags", None, Buffer("io", 512, "u8", (2,)), "u8[1] or b1[1]"),
    ("flags", None, Buffer("io", 512, "u8", ()), "u8[1] or b1[1]"),
    ("scale", None, replace(ONE, dtype="i64"), "one f64 or f32"),
    ("skipped", None, ONE, "one i64"),
    ("skipped", None, Buffer("io", 512, "i64", (1,)), "one i64"),
    ("count", None, ONE, "one f64"),
    ("partial.sum", None, Buffer("io", 512, "f32", (3,)), "is f64"),
    ("partial.max", None, Buffer("io", 512, "i64", ()), "is f64"),
]


@pytest.mark.parametrize(("kind", "port", "buffer", "rule"), WRONG)
def test_each_output_is_what_its_kind_is(kind: str, port: Port | None, buffer: Buffer | None, rule: str) -> None:
    right = RIGHT[kind]
    for entry in (e for e, kinds in KINDS.items() if kind in kinds):
        found = why_not(giving(port or right[0], buffer or right[1], entry), entry)
        assert found is not None and found.startswith("here: outputs[0]") and rule in found


def test_a_prediction_gives_every_result() -> None:
    found = why_not(plan(), "predict")
    assert found is not None and "the results are ['output']" in found


X, LABEL = Buffer("io", 256, "f32", (4, 3)), Buffer("io", 512, "i32", (4,))


@pytest.mark.parametrize("entry", KINDS)
def test_an_entry_takes_its_inputs_alone(entry: str) -> None:
    """The model's inputs; a step of training or evaluation those of the train section, too; the start takes none."""
    for name, buffer, takes in (
        ("x", X, ("accumulate_step", "train_step", "eval_step", "predict")),
        ("label", LABEL, ("accumulate_step", "train_step", "eval_step")),
        ("y", X, ()),
    ):
        result, place = RIGHT["result"]
        outputs = (replace(result, buffer=1),) if entry == "predict" else ()
        found = why_not(plan(buffers=(buffer, place), inputs=(Port(name, "data", 0),), outputs=outputs), entry)
        if entry == "eval_finish":
            assert found is not None and "is f64" in found, "it takes what the steps have added up"
        elif entry in takes:
            assert found is None
        else:
            assert found is not None and f"here: inputs[0]: {name!r} is not an input of {entry}" in found


def test_the_end_of_an_evaluation_takes_partial_values_of_any_shape() -> None:
    for shape in ((), (3,), (2, 2)):
        assert (
            why_not(plan(buffers=(Buffer("io", 256, "f64", shape),), inputs=(Port("loss", "data", 0),)), "eval_finish")
            is None
        )


@pytest.mark.parametrize("wrong", [replace(X, dtype="f64"), replace(X, shape=(3, 3)), replace(X, shape=(4, 3, 1))])
def test_an_input_has_its_dtype_and_shape_at_the_sizes_of_the_program(wrong: Buffer) -> None:
    found = why_not(plan(buffers=(wrong,), inputs=(Port("x", "data", 0),)), "train_step")
    assert found is not None and "here: inputs[0]: 'x' is f32[4, 3]" in found


def test_scalars_are_those_of_a_step_and_of_the_interface() -> None:
    for name in ("step", "seed", "row", "lr", "beta", "gamma"):
        kind = "i64" if name in ("step", "seed", "row") else "f32"
        found = why_not(plan(scalars=(Scalar(name, 0, kind),)), "train_step")
        assert (found is None) == (name != "gamma")
        assert name == "beta" or (why_not(plan(scalars=(Scalar(name, 0, kind),)), "init") is None) == (name != "gamma")


def test_a_model_without_a_train_section() -> None:
    """It has no labels, metrics or scalars of its own, and an artifact of it is read."""
    assert why_not(giving(*RIGHT["result"], "predict"), "predict", train=False) is None
    assert why_not(plan(scalars=(Scalar("beta", 0, "f32"),)), "init", train=False) is not None
    header, data = take_apart(small_artifact.artifact_bytes())
    header["interface"]["train"] = None
    header["programs"] = [p for p in header["programs"] if p["entry"] != "train_step"]
    pieces = [(b["name"], b["kind"], data[b["name"]]) for b in header["blobs"] if b["name"] != "plan.3"]
    header["blobs"] = table_of(pieces)
    header["interface_sha256"] = small_artifact.digest(header["interface"])
    artifact = Artifact.of_bytes(put_together(canonical_text(header), [p[2] for p in pieces]))
    artifact.verify()
    assert [p.entry for p in artifact.all_programs()] == ["init", "predict", "predict"]


def test_the_ports_of_an_artifact_are_checked_when_it_is_verified_and_when_a_plan_is_taken() -> None:
    header, data = take_apart(small_artifact.artifact_bytes())
    data["plan.1"] = replace(small_artifact.predict_plan(1), outputs=(Port("other", "result", 2),)).encode()
    pieces = [(b["name"], b["kind"], data[b["name"]]) for b in header["blobs"]]
    header["blobs"] = table_of(pieces)
    artifact = Artifact.of_bytes(put_together(canonical_text(header), [p[2] for p in pieces]))
    for call in (artifact.verify, lambda: artifact.plan(artifact.program("predict", {"B": 1}))):
        with pytest.raises(ArtifactError, match="is not a result"):
            call()
    assert artifact.plan(artifact.program("predict", {"B": 4}))
