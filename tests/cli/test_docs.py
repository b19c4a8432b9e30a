"""The pages of docs/ that come from tables are as the tables say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dslc.runtime.train.config import load_config

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}run `make docs`"


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]
    assert len(pages) > 8
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_configurations_of_config_md_are_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/config.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        path = tmp_path / "dslc.yaml"
        path.write_text(block)
        config = load_config(str(path), {}, {})
        assert config.train.epochs > 1
        assert all(e.origin != "default" for e in config.entries if e.name == "train.lr"), block


def test_make_help_lists_every_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    ran = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in ran.stdout.splitlines() if line.startswith("  make ")} == targets
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony and set(phony[1].split()) == targets


def test_the_op_of_contributing_can_be_registered() -> None:
    """The example is complete: it registers, and its scalar tree and its numpy meaning agree."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(class Softsign.*?)```", text, re.DOTALL)
    assert example
    before = (
        "from __future__ import annotations\nimport numpy as np\n"
        "import dslc.compiler.ops.elementwise as family\n"
        "globals().update({k: v for k, v in vars(family).items() if not k.startswith('__')})\n"
    )
    after = (
        "x = np.linspace(-3, 3, 7)\n"
        "by_tree = tree.evaluate(softsign.scalar({}, tree.argument(0)), [x])\n"
        "[by_numpy] = softsign.meaning([x], {})\n"
        "assert np.allclose(by_tree, by_numpy) and np.allclose(by_numpy, x / (1 + abs(x)))\n"
    )
    code = before + example[1] + after
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr


def test_the_readme_shows_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is the example's, and its error message is the real one."""
    from dslc.compiler.check.model import check_file
    from dslc.dsl.diagnostics import CompileError

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)```", readme, re.DOTALL)
    model = (ROOT / "examples/digits/lenet.nn").read_text(encoding="utf-8")
    assert blocks[0] == model
    [shown] = [block for block in blocks if block.startswith("error[")]
    monkeypatch.chdir(tmp_path)
    Path("lenet.nn").write_text(model.replace("conv(16, 5)", "conv(16, 5, strides=2)"), encoding="utf-8")
    with pytest.raises(CompileError) as raised:
        check_file("lenet.nn")
    assert raised.value.render() + "\n" == shown
