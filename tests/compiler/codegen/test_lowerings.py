"""Lowerings of ops are found by listing folders, one for an op and a target, whatever is imported first."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import dslc
from dslc.compiler.codegen import lowerings as module
from dslc.compiler.codegen.lowerings import lowerings, lowers
from dslc.compiler.ops import registry

HERE = Path(dslc.__file__).parent / "compiler/codegen"


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it; what modules declare when they are imported is not."""
    lowerings("cpu"), lowerings("cuda")
    monkeypatch.setattr(module, "_DECLARED", dict(module._DECLARED))


def test_two_lowerings_of_an_op_for_one_target_are_refused() -> None:
    for op, target in (("topk", "cpu"), ("topk", "cuda"), ("softmax", None), ("pack_bits", "cuda")):
        with pytest.raises(TypeError, match=rf"two lowerings of `{op}` for [\w ]+: dslc\.\S+ and \S*none"):

            @lowers(op, target=target)  # type: ignore[arg-type]
            def none(node: object) -> None: ...


def test_a_target_takes_its_own_lowering_before_the_shared_one() -> None:
    def shared(node: object) -> None: ...
    def own(node: object) -> None: ...

    lowers("made_up_op", target="cuda")(own)
    lowers("made_up_op")(shared)
    assert lowerings("cuda")["made_up_op"] is own and lowerings("cpu")["made_up_op"] is shared


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_only_ops_are_lowered(target: module.Family) -> None:
    assert lowerings(target).keys() <= registry.ops().keys()


def test_every_file_with_a_lowering_is_found() -> None:
    having = {p for p in HERE.rglob("*.py") if "\n@lowers(" in p.read_text()}
    found = {HERE / f"{f.__module__.removeprefix('dslc.compiler.codegen.').replace('.', '/')}.py"
             for f in module._DECLARED.values()}  # fmt: skip
    assert having == found and len(having) > 20


def test_no_order_of_imports_changes_what_an_op_becomes() -> None:
    code = """if True:
        import sys
        for name in sys.argv[1:]:
            __import__(name)
        from dslc.compiler.codegen.lowerings import lowerings
        for target in ("cpu", "cuda"):
            for op, function in sorted(lowerings(target).items()):
                print(target, op, function.__module__, function.__qualname__)
        """
    names = ["dslc." + str(p.relative_to(HERE.parents[1]).with_suffix("")).replace("/", ".")
             for p in HERE.rglob("*.py") if "\n@lowers(" in p.read_text()]  # fmt: skip
    shuffled = random.Random(0).sample(names, len(names))
    outputs = {
        subprocess.run([sys.executable, "-c", code, *order], check=True, capture_output=True, text=True).stdout
        for order in ([], names[::-1], shuffled)
    }
    assert len(outputs) == 1 and outputs.pop().count("\n") > 150
