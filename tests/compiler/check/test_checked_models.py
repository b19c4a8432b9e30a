"""The models of the language: they check, and their tensors have the names and shapes that users expect."""

from __future__ import annotations

import pytest
from places import EXAMPLES, MODELS

from dslc.base.errors import BuildError
from dslc.compiler.check import expressions
from dslc.compiler.check.model import Checked, check_all, check_file, check_program
from dslc.compiler.ir.graph import Kind
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.load import Module, Program
from dslc.dsl.parser import parse
from dslc.dsl.span import Source


def check(text: str, **args: str) -> Checked:
    source = Source("net.nn", text)
    module = Module(source, parse(source), "0" * 64, ())
    return check_program(Program(module, (module,)), None, args)


def shapes(checked: Checked) -> dict[str, tuple[object, ...]]:
    return {name: info.input.value.type.shape for name, info in checked.params.items()}


@pytest.mark.parametrize("name", ["lenet", "resnet50", "lstm_lm", "gpt2", "unet", "vae", "siamese"])
def test_model_checks(name: str) -> None:
    checked = check_file(MODELS / f"{name}.nn")
    assert checked.train is not None and checked.train.loss is not None
    assert checked.batch is not None and checked.batch.name == "B"


def test_lenet_has_pytorch_shapes_in_forward_order() -> None:
    assert shapes(check_file(MODELS / "lenet.nn")) == {
        "c1.weight": (6, 1, 5, 5),
        "c1.bias": (6,),
        "c2.weight": (16, 6, 5, 5),
        "c2.bias": (16,),
        "f1.weight": (120, 400),
        "f1.bias": (120,),
        "f2.weight": (84, 120),
        "f2.bias": (84,),
        "head.weight": (10, 84),
        "head.bias": (10,),
    }


def test_resnet50_names_and_count() -> None:
    checked = check_file(MODELS / "resnet50.nn")
    found = shapes(checked)
    assert found["stage.1.unit.0.a.conv.weight"] == (128, 256, 1, 1)
    assert found["stage.0.unit.0.proj.batchnorm.running_var"] == (256,)
    trained = [s for n, s in found.items() if checked.params[n].input.kind is Kind.PARAM]
    total = 0
    for shape in trained:
        count = 1
        for size in shape:
            assert isinstance(size, int)
            count *= size
        total += count
    assert total == 25_557_032, "ResNet-50's published number of parameters"


def test_gpt2_names_in_an_unlabelled_loop() -> None:
    found = shapes(check_file(MODELS / "gpt2.nn"))
    assert found["h.11.attn.qkv.weight"] == (2304, 768)
    assert found["tok.weight"] == (50304, 768)
    assert "ln_f.weight" in found and "pos" in found


def test_shared_tower_has_one_set_of_parameters() -> None:
    checked = check_file(MODELS / "siamese.nn")
    assert sorted(shapes(checked)) == [
        "enc.c1.bias", "enc.c1.weight", "enc.c2.bias", "enc.c2.weight", "enc.fc.bias", "enc.fc.weight",
    ]  # fmt: skip
    names = {node.name for node in checked.graph.nodes}
    assert {"enc.c1", "enc#2.c1"} <= names


def test_arguments_change_shapes() -> None:
    checked = check_file(MODELS / "lenet.nn", args={"classes": "7"})
    assert shapes(checked)["head.bias"] == (7,)
    assert checked.args["classes"] == 7


@pytest.mark.parametrize("args", [{"klasses": "7"}, {"classes": "seven"}, {"classes": "7.5"}])
def test_wrong_arguments(args: dict[str, str]) -> None:
    with pytest.raises(BuildError) as caught:
        check_file(MODELS / "lenet.nn", args=args)
    assert caught.value.code == "E0605"


def test_every_model_of_a_file() -> None:
    checked = check_all(EXAMPLES / "resnet" / "resnet.nn")
    assert [c.name for c in checked] == ["ResNet18", "ResNet50", "ResNet152"]
    [one] = check_all(f"{EXAMPLES}/resnet/resnet.nn:ResNet18")
    assert one.name == "ResNet18"


def test_unlabelled_twice_is_warned_about() -> None:
    checked = check("nn 1\nmodel Net(x: [4, 8]) -> [4, 2] { return x |> linear(8) |> relu |> linear(2) }\n")
    assert list(shapes(checked)) == ["linear.weight", "linear.bias", "linear_2.weight", "linear_2.bias"]
    assert [w.code for w in checked.warnings] == ["W001"]


def test_one_base_name_for_all_rounds_of_a_loop() -> None:
    checked = check(
        "nn 1\nmodel Net(x: [4, 8]) -> [4, 8] {\n"
        "  for i in 0..2 { x = x |> linear(8) |> relu }\n  for i in 0..2 { x = x |> linear(8) }\n  return x\n}\n"
    )
    assert [n for n in shapes(checked) if n.endswith("weight")] == [
        "linear.0.weight", "linear.1.weight", "linear_2.0.weight", "linear_2.1.weight",
    ]  # fmt: skip


def test_groups_multiply_and_freeze() -> None:
    checked = check(
        "nn 1\nblock body(x: [B, D]) -> [B, D] {\n  @lr(0.5)\n  layer a = linear(D)\n"
        "  return a(x) |> linear(D) as b\n}\n"
        "model Net(x: [4, 8]) -> [4, 2] {\n  @lr(0.1)\n  y = x |> body\n  @freeze\n  @decay(0)\n"
        "  return y |> linear(2) as head\n}\n"
    )
    groups = {n: i.groups for n, i in checked.params.items()}
    assert groups["body.a.weight"].lr == pytest.approx(0.05)
    assert groups["body.b.weight"].lr == pytest.approx(0.1)
    assert groups["head.weight"].freeze and groups["head.weight"].decay == 0.0


def test_lists_hold_tensors_and_sizes() -> None:
    checked = check(
        "nn 1\nmodel Net(x: [4, 8]) -> [4, 24] {\n  parts = []\n"
        "  for w in [1, 2, 3] { parts = parts + [x * w] }\n  parts[0] = x\n"
        "  return concat([parts[0], parts[1], parts[-1]], axis=1)\n}\n"
    )
    assert checked.graph.outputs["result.output"].type.shape == (4, 24)


def test_dim_of_the_signature_names_an_axis() -> None:
    checked = check(
        "nn 1\nblock pool(x: [N, T, D]) -> [N, D] { return x |> mean(over=T) }\n"
        "model Net(x: [4, 5, 8]) -> [4, 8] { return x |> pool }\n"
    )
    assert checked.graph.outputs["result.output"].type.shape == (4, 8)


def test_ten_thousand_layers() -> None:
    checked = check("nn 1\ndim B in 1..8 = 4\nmodel Deep(x: [B, 4]) -> [B, 4] {\n"
                    "  for i in 0..10_000 { x = x |> linear(4) |> relu }\n  return x\n}\n")  # fmt: skip
    assert len(checked.params) == 20_000


def test_deep_expressions_work_up_to_the_limit() -> None:
    sums = " + ".join(["x"] * 190)
    check(f"nn 1\nmodel Net(x: [4, 4]) -> [4, 4] {{\n  return {sums}\n}}\n")
    pipes = " |> ".join(["x"] + ["relu"] * 190)
    check(f"nn 1\nmodel Net(x: [4, 4]) -> [4, 4] {{\n  return {pipes}\n}}\n")
    signs = "-" * 150
    check(f"nn 1\nmodel Net(x: [4, 4]) -> [4, 4] {{\n  return {signs}x\n}}\n")


def test_chain_of_blocks_up_to_the_limit() -> None:
    def chain(length: int) -> str:
        blocks = ["block b0(x: [N, D]) -> [N, D] { return relu(x) }"]
        blocks += [f"block b{i}(x: [N, D]) -> [N, D] {{ return x |> b{i - 1} as c }}" for i in range(1, length)]
        model = f"model Net(x: [4, 4]) -> [4, 4] {{ return x |> b{length - 1} }}"
        return "\n".join(["nn 1", *blocks, model, ""])

    check(chain(98))
    with pytest.raises(CompileError) as caught:
        check(chain(400))
    assert caught.value.code == "E0004"


def test_mirror_is_said_of_the_nodes_below() -> None:
    text = "nn 1\n@mirror({})\nblock f(x: [N, D]) -> [N, D] {{ return tanh(x) + x }}\n"
    text += "model Net(x: [4, 8]) -> [4, 8] {{ return sin(x |> f) }}\n"
    for word in ("always", "never"):
        checked = check(text.format(word))
        said = {node.op.name: checked.mirror.get((node.name, node.span)) for node in checked.graph.nodes}
        assert said == {"tanh": word, "add": word, "sin": None}
    assert check(text.format("auto")).mirror == {}


def test_rounds_that_make_operations_do_not_count_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "MAX_STEPS", 2000)
    busy = "nn 1\nmodel M(x: [4]) -> [4] {\n  for i in 0..5000 { x = relu(x) }\n  return x\n}\n"
    assert len(check(busy).graph.nodes) == 5000
    with pytest.raises(CompileError, match="E0006"):
        check(busy.replace("x = relu(x)", "y = i"))
