"""dslc.yaml: what is read, where each value comes from, and what is refused, in time and without running anything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml as pyyaml
from hostile.hostile_yaml import CORPUS, MODEL
from places import with_support

from dslc.base.errors import DataError
from dslc.runtime.config.fields import FIELDS
from dslc.runtime.config.load import load_config
from dslc.runtime.config.policies import Best, NanPolicy
from dslc.runtime.config.schedule import Duration, Schedule
from dslc.runtime.config.yaml import parse_yaml, plain

FULL = """\
model: resnet.nn:ResNet18
args:  {classes: 10, wide: 1.5, deep: false, kind: relu}
build: {target: auto, sizes: {train: {B: 64}, predict: {B: [1, 64]}}}
data:
  train: {image: d/digits.npz:train_x, label: /abs/labels.npy}
  eval:
  shuffle: false
train:
  epochs: 20
  lr: {cosine: {warmup: 2 epochs, end: 1e-2}}
  schedules: {beta: {linear: {base: 0, end: 4, over: 0.5 epochs}}, gamma: 3}
  on_nan: skip 3
save: {dir: runs/digits, every: 500 steps, keep: 3, best: lowest ppl}
"""


def test_a_full_file(tmp_path: Path) -> None:
    (tmp_path / "dslc.yaml").write_text(FULL)
    config = load_config(tmp_path / "dslc.yaml")
    assert (config.model, config.model_name) == (tmp_path / "resnet.nn", "ResNet18")
    assert config.args == {"classes": 10, "wide": 1.5, "deep": False, "kind": "relu"}
    assert config.build == {"target": "auto", "sizes": {"train": {"B": 64}, "predict": {"B": [1, 64]}}}
    image, label = config.data.train["image"], config.data.train["label"]
    assert (image.path, image.key) == (tmp_path / "d/digits.npz", "train_x")
    assert (label.path, label.key) == (Path("/abs/labels.npy"), None)
    assert config.data.eval == {} and not config.data.shuffle and config.data.check_finite
    assert config.train.epochs == 20 and config.train.seed == 0 and config.train.on_nan == NanPolicy(3)
    assert config.train.lr == Schedule("cosine", warmup=Duration(2, "epochs"), end=0.01)
    beta = Schedule("linear", base=0.0, end=4.0, over=Duration(0.5, "epochs"))
    assert config.train.schedules == {"beta": beta, "gamma": Schedule(base=3.0)}
    assert config.save.dir == tmp_path / "runs/digits" and config.save.every == Duration(500, "steps")
    assert config.save.keep == 3 and config.save.best == Best("ppl", highest=False)


def test_defaults(tmp_path: Path) -> None:
    (tmp_path / "dslc.yaml").write_bytes(b"\xef\xbb\xbfmodel: lenet.nn\r\n")
    config = load_config(tmp_path / "dslc.yaml")
    assert config.save.dir == tmp_path / "runs/lenet" and config.train.lr == Schedule()
    assert {e.origin for e in config.entries if e.name != "model"} == {"default"}
    assert {e.name for e in config.entries} == {f.name for f in FIELDS if not f.open}


def test_flags_beat_variables_beat_the_file_beat_defaults(tmp_path: Path) -> None:
    path = tmp_path / "dslc.yaml"
    path.write_text(MODEL + "args: {a: 1, b: 2}\ntrain: {epochs: 2, seed: 5, log_every: 9 steps}\nsave: {keep: 4}\n")
    env = {"DSLC_TRAIN_EPOCHS": "3", "DSLC_TRAIN_SEED": "6", "DSLC_TRAIN_LR": "{cosine: {end: 0.5}}", "DSLC_SOAK": "1"}
    flags = {"train.epochs": 4, "args.b": "7", "args.c": "x", "save.dir": "out: 1", "train.base_lr": None}
    config = load_config(path, flags, env)
    origins = {e.name: (e.value, e.origin) for e in config.entries}
    assert origins["train.epochs"] == (4, "flag") and config.train.epochs == 4
    assert origins["train.seed"] == (6, "DSLC_TRAIN_SEED")
    assert origins["train.lr"] == ({"cosine": {"end": 0.5}}, "DSLC_TRAIN_LR")
    assert origins["train.log_every"] == ("9 steps", f"{path}:3:40")
    assert origins["save.keep"] == (4, f"{path}:4:14")
    assert origins["args.a"] == (1, f"{path}:2:11") and origins["args.b"] == (7, "flag")
    assert config.args == {"a": 1, "b": 7, "c": "x"}
    assert config.save.dir == Path("out: 1").absolute(), "a flag's path is relative to the working folder"
    assert config.train.base_lr is None, "a flag that was not given"


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        ({"train.epochs": "many"}, {}, "flag train.epochs"),
        ({"train.epochs": "1\nmodel: x"}, {}, "one value"),
        ({"train.lr": "!!python/name:os.system"}, {}, "tag"),
        ({}, {"DSLC_TRAIN_EPOCHS": "0"}, "DSLC_TRAIN_EPOCHS"),
        ({}, {"DSLC_TRAIN_EPOCH": "1"}, "did you mean DSLC_TRAIN_EPOCHS?"),
        ({}, {"DSLC_TRAIN_EPOCHS": "\udcff"}, "DSLC_TRAIN_EPOCHS"),
        ({}, {"DSLC_TRAIN_EPOCHS": "${HOME}"}, "DSLC_TRAIN_EPOCHS"),
    ],
)
def test_flags_and_variables_are_checked_too(
    tmp_path: Path, flags: dict[str, object], env: dict[str, str], says: str
) -> None:
    (tmp_path / "dslc.yaml").write_text(MODEL)
    with pytest.raises(DataError) as caught:
        load_config(tmp_path / "dslc.yaml", flags, env)
    assert caught.value.code == "R104" and says in caught.value.render()
    assert not (caught.value.place or "").endswith(":0"), "neither has lines"


def test_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        load_config()
    assert caught.value.code == "R101" and "dslc new" in (caught.value.help or "")
    assert load_config(flags={"model": "m.nn"}).model == tmp_path / "m.nn"
    with pytest.raises(DataError) as caught:
        load_config("other.yaml")
    assert caught.value.code == "R101"


@pytest.mark.parametrize("kind", ["folder", "fifo", "device", "missing"])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "dslc.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(DataError) as caught:
        load_config(path)
    assert caught.value.code == "R101"


CORE = {
    "1e-3": 0.001, "1.": 1.0, ".5": 0.5, "-1.5E+2": -150.0, "+3": 3, "0": 0, "0x1F": 31, "0o17": 15,
    "no": "no", "yes": "yes", "on": "on", "off": "off", "y": "y", "NO": "NO", "true": True, "FALSE": False,
    "~": None, "": None, "Null": None, "1_000": "1_000", "12:30:45": "12:30:45", "0b1": "0b1",
    "2001-12-14": "2001-12-14",
    "1e": "1e", "e3": "e3", "'012'": "012", '"1"': "1", "-": None, "=": "=", "1.2.3": "1.2.3", "0X1f": "0X1f",
}  # fmt: skip


@pytest.mark.parametrize("text", [t for t in CORE if t != "-"])
def test_scalars_follow_the_core_schema(text: str) -> None:
    found = plain(parse_yaml(f"a: {text}".encode(), "x"))
    assert isinstance(found, dict) and found["a"] == CORE[text] and type(found["a"]) is type(CORE[text])


def test_depth_and_count_limits_are_met_exactly() -> None:
    parse_yaml(("a: " + "[" * 31 + "]" * 31).encode(), "x")
    with pytest.raises(DataError):
        parse_yaml(("a: " + "[" * 32 + "]" * 32).encode(), "x")
    parse_yaml(("a: [" + "1," * 9_997 + "]").encode(), "x")
    with pytest.raises(DataError):
        parse_yaml(("a: [" + "1," * 9_998 + "]").encode(), "x")
    head = b"a: 1\n#"
    parse_yaml(head + b"x" * ((1 << 20) - len(head)), "x")


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 100
    assert len({source for source, _ in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("case", range(len(CORPUS)))
def test_hostile_files_are_refused_with_place_cause_and_help(
    tmp_path: Path, case: int, allowed: Callable[[float, float], bool]
) -> None:
    source, says = CORPUS[case]
    path = tmp_path / "dslc.yaml"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    begun = time.process_time()
    with pytest.raises(DataError) as caught:
        load_config(path)
    assert allowed(time.process_time() - begun, 2)
    error = caught.value
    assert error.code == "R104" and says in error.message, error.render()
    assert error.place and str(path) in error.place and error.help and "\n" not in error.help
    assert error.render().isprintable() or "\n" in error.render()
    assert len(error.render()) < 600 + 3 * len(str(path)), "a message never repeats a whole hostile text"


def test_a_date_to_fill_in_is_told_its_form(tmp_path: Path) -> None:
    (tmp_path / "dslc.yaml").write_text(
        MODEL + "data: {columns: {a: {date: year, format: '%d.%m.%Y', missing: '01.02.1970'}}}\n"
    )
    with pytest.raises(DataError, match="is no date") as caught:
        load_config(tmp_path / "dslc.yaml")
    assert caught.value.help and "1970-01-01" in caught.value.help and "`format`" in caught.value.help


AUDIT = """
import os, sys
from pathlib import Path
from hostile.hostile_yaml import CORPUS
from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.config.yaml import parse_yaml
import yaml, difflib, encodings.utf_16, encodings.utf_32  # loaded before the hook, as in any run
import dslc.runtime.config.sections.columns  # loaded with the first configuration that describes columns

events, quiet = [], True
FORBIDDEN = ("exec", "compile", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "import",
             "socket.", "pty.", "shutil.", "os.remove", "os.rename", "os.mkdir", "ctypes.", "marshal.", "pickle.")
def hook(name, args):
    if quiet:
        return
    if name.startswith(FORBIDDEN) or (
        name == "open" and str(args[0]) != str(path) and not isinstance(args[0], int)  # a file that is open already
    ):
        events.append((name, str(args)[:200]))
sys.addaudithook(hook)

path = Path(sys.argv[1]) / "dslc.yaml"
for source, _ in CORPUS:
    quiet = True
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    quiet = False
    try:
        load_config(path)
    except DataError:
        pass
quiet = True
assert not events, events
print("clean", len(CORPUS))
# The control: a loader that follows tags is caught by the same hook.
path.write_text("!!python/object/apply:os.system ['true']")
quiet = False
yaml.unsafe_load(path.read_text())
quiet = True
assert any(name == "os.system" for name, _ in events), events
print("control caught")
"""


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("train:\n\tepochs: 1\n", "indent with spaces, not with tabs"),
        ("data: {train: {x: *.csv}}\n", "put a text that begins with * in quotes"),
        ("model: &net.nn\n", "put a text that begins with & in quotes"),
        ("model: @net.nn\n", "put the text in quotes"),
        ("model: net.nn: Net\n", "put a text with `: ` in quotes"),
        ("model: a.nn\n train: {epochs: 1}\n", "indent a key as its neighbours"),
        ("train: {epochs: 1\nsave: {}\n", "commas between the entries, and } at the end"),
        ("args: {x: [1 2}\n", "and ] at the end"),
        ("model: 'a.nn\n", "the same quote at the end"),
    ],
)
def test_the_help_for_a_text_that_is_no_yaml(text: str, help: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_yaml(text.encode(), "dslc.yaml")
    assert caught.value.code == "R104" and help in str(caught.value.help)


@pytest.mark.parametrize(
    ("text", "cause", "help"),
    [
        ("epochs: 3\n", "unknown key `epochs`", "write `train: {epochs: ...}`"),
        ("train: {workers: 3}\n", "unknown key `workers` in `train`", "write `data: {workers: ...}`"),
        ("data: {best: loss}\n", "unknown key `best` in `data`", "write `save: {best: ...}`"),
        (
            "data: {train: {x: t.csv:a,b}}\n",
            "`data.train.b` has no value",
            'needs quotes inside of `{ }`: `x: "t.csv:a,b"`',
        ),
        ("data:\n  train:\n    x:\n", "`data.train.x` has no value", "write it after the colon"),
    ],
)
def test_a_key_in_the_wrong_place_and_one_without_a_value(tmp_path: Path, text: str, cause: str, help: str) -> None:
    (tmp_path / "dslc.yaml").write_text(MODEL + text)
    with pytest.raises(DataError) as caught:
        load_config(tmp_path / "dslc.yaml")
    assert caught.value.code == "R104" and cause in caught.value.message and help in str(caught.value.help)


def test_no_hostile_file_executes_or_opens_anything(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(tmp_path)], env=with_support(),
        capture_output=True, text=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == [f"clean {len(CORPUS)}", "control caught"]
    assert not (tmp_path / "pwned").exists()


def test_mutated_files_give_a_config_or_an_error_of_ours(
    tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    rng = np.random.default_rng(fuzz_seed)
    pieces = [
        b"!!",
        b"&a ",
        b"*a",
        b"<<: ",
        b"[",
        b"{",
        b"}",
        b"'",
        b'"',
        b"\\x00",
        b"%",
        b"---\n",
        b"\t",
        b"? ",
        b": ",
    ]
    path = tmp_path / "dslc.yaml"
    read = refused = 0
    for _ in range(fuzz_count(3000)):
        data = bytearray(FULL.encode())
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            match int(rng.integers(4)):
                case 0:
                    data[at] = int(rng.integers(256))
                case 1:
                    del data[at : at + int(rng.integers(1, 20))]
                case 2:
                    data[at:at] = pieces[int(rng.integers(len(pieces)))]
                case _:
                    end = at + int(rng.integers(1, 40))
                    data[at:at] = data[at:end]
        path.write_bytes(data)
        try:
            load_config(path)
            read += 1
        except DataError as error:
            assert error.code == "R104" and error.help
            refused += 1
    assert read and refused, "mutations that all pass or all fail try nothing"


def test_plain_yaml_reads_as_pyyaml_does_where_the_two_agree() -> None:
    found = plain(parse_yaml(FULL.encode(), "x"))
    expected = pyyaml.safe_load(FULL.replace("1e-2", "0.01"))
    assert found == expected


@pytest.mark.parametrize("text", ["", "\n", "# a comment\n", "---\n", "null\n", "~\n"])
def test_a_file_without_content_is_an_empty_mapping(text: str) -> None:
    assert plain(parse_yaml(text.encode(), "dslc.yaml")) == {}
