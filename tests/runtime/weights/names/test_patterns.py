"""Patterns of names against a slow reference, which tries every way to take a name apart."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dslc.base.errors import ArtifactError
from dslc.runtime.weights.names.name_map import NameMap
from dslc.runtime.weights.names.pattern import BadRule, Pattern
from dslc.runtime.weights.names.rule import Rule
from dslc.runtime.weights.tensor_bytes import FileTensor

EMPTY = FileTensor("f32", (0,), np.zeros(0, np.uint8))


def rename(rules: dict[str, object], *names: str) -> list[str]:
    return list(NameMap.of(rules).naming(names, "here").made)


@pytest.mark.parametrize(
    ("rules", "old", "new"),
    [
        ({"layer{s}.{u}.conv{c}": "stage.{s-1}.{u}.c{c}"}, "layer4.1.conv2.weight", "stage.3.1.c2.weight"),
        ({"layer{s}.{u}": "stage.{s-1}.unit.{u}"}, "layer10.12.bn.weight", "stage.9.unit.12.bn.weight"),
        ({"{a}.{b}": "{b}.{a}"}, "x.y.z", "y.x.z"),
        ({"h{i+0}": "x"}, "", ""),
        ({"model.*": "*"}, "model.a.b", "a.b"),
        ({"*": "net.*"}, "a.b", "net.a.b"),
        ({"a.*.w": "b.*.weight"}, "a.1.2.w", "b.1.2.weight"),
        ({"x.{i}": "y.{i+1}"}, "x.9.w", "y.10.w"),
        ({"ln.{p:gamma|beta}": "ln.{p:weight|bias}"}, "ln.beta", "ln.bias"),
        ({"f.{i:0|3|10}": "c.{i:0|1|2}"}, "f.10.w", "c.2.w"),
        ({"{k:conv|norm}{i}.w": "{k}.{i}.w"}, "norm12.w", "norm.12.w"),
        ({"é.层{i}": "ö.{i}"}, "é.层7.w", "ö.7.w"),
        ({"a" * 1024: "b"}, "a" * 1024, "b"),
        ({f"{'a.' * 500}{{i}}": f"{{i}}{'.b' * 500}"}, "a." * 500 + "1", "1" + ".b" * 500),
    ],
)  # fmt: skip
def test_a_pattern_renames(rules: dict[str, object], old: str, new: str) -> None:
    if not old:
        with pytest.raises(BadRule, match="belongs into the new name"):
            NameMap.of(rules)
        return
    assert rename(rules, old) == [new]


@pytest.mark.parametrize(
    "name", ["layer", "layer01", "layerx", "layer1x", "layer1234567890", "layer١", "layer0", "layer-1", "xlayer1", ""]
)
def test_an_integer_is_one_number_without_leading_zeros(name: str) -> None:
    """Also if the new number would be negative, the pattern does not fit."""
    assert Rule.of("layer{s}", "stage.{s-1}").taken(name.split(".")) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a{", "b", "without `}`"),
        ("a}", "b", "without `{`"),
        ("a.{i.j}", "b", "without `}`"),
        ("a{}", "b", "is not a place"),
        ("a{i*2}", "b", "stands for whole parts"),
        ("a{é}", "b", "is not a place"),
        ("a{i|j}", "b", "is not a place"),
        ("a{i}{j}", "{i}{j}", "where the integer"),
        ("a{i}0", "{i}", "where the integer"),
        ("{i}.{i}", "{i}", "twice"),
        ("a{i}", "b{j}", "the old one does not"),
        ("a{i}", "b", "lacks `{i}`"),
        ("a.*", "b", "in one of the names only"),
        ("a", "b.*", "in one of the names only"),
        ("*.a.*", "*", "more than 1"),
        ("a*", "b*", "stands for whole parts"),
        ("a b", "c", "a name of a tensor has no"),
        ("a\x00", "c", "a name of a tensor has no"),
        ("a", "c\u202e", "a name of a tensor has no"),
        ("", "c", "1 to 1,024"),
        ("a" * 1025, "c", "1 to 1,024"),
        ("".join(f"{{i{n}}}." for n in range(17)), "c", "at most 16 places"),
        ("{p:a|b}", "{p:x|y|z}", "as many texts"),
        ("{p:a|a}", "{p:x|y}", "the same text twice"),
        ("{p:a||b}", "{p:x|y|z}", "an empty text"),
        ("{p:a|b}.{q:c|d}", "x", "along one place"),
        ("{p:a|b}", "{p+1}", "is not an integer"),
        ("a", {"to": "b", "axis": 0}, "join or a split"),
        ("a", {"to": "b", "sizes": {"h": 2}}, "belongs to `rearrange`"),
        ("a", {"to": "b", "eval": "1"}, "is not known in a rule"),
        ("a", {"axis": 0}, "has no new name"),
        ("a", 3, "has no new name"),
        ("a", {"to": "{p:q|k}", "parts": [1]}, "one positive integer for each"),
        ("a", {"to": "b", "rearrange": "i o -> o"}, "each axis once"),
        ("a", {"to": "b", "rearrange": "i i -> i i"}, "each axis once"),
        ("a", {"to": "b", "rearrange": "(i o -> o i"}, "brackets"),
        ("a", {"to": "b", "rearrange": "(i o) -> o i"}, "not known"),
        ("a", {"to": "b", "rearrange": "i -> i", "sizes": {"h": 2}}, "has no axis"),
        ("a", {"to": "b", "rearrange": "i 2 -> 2 i"}, "not understood"),
    ],
)
def test_a_malformed_rule_is_refused(old: str, new: object, said: str) -> None:
    with pytest.raises(BadRule) as caught:
        Rule.of(old, new)
    assert said in str(caught.value) and caught.value.help


# -- against the reference ------------------------------------------------------------------------------------------


def ways(pattern: list[object], text: str) -> Iterator[dict[str, str]]:
    """Every way in which tokens fit a text: a literal, ("int", name), ("part", name), ("star",), (name, texts)."""
    if not pattern:
        if not text:
            yield {}
        return
    first, *rest = pattern
    if isinstance(first, str):
        if text.startswith(first):
            yield from ways(rest, text[len(first) :])
        return
    assert isinstance(first, tuple)
    for end in range(1, len(text) + 1):
        piece = text[:end]
        if first[0] == "int":
            right = piece.isascii() and piece.isdecimal() and (piece == "0" or piece[0] != "0") and len(piece) < 10
        elif first[0] == "part":
            right = "." not in piece
        elif first[0] == "star":
            right = all(piece.split("."))
        else:
            right = piece in first[1]
        if right:
            for more in ways(rest, text[end:]):
                yield {
                    **more,
                    (first[1] if first[0] in ("int", "part") else "*" if first[0] == "star" else first[0]): piece,
                }


def random_pattern(rng: random.Random) -> tuple[str, list[object]]:
    said, tokens = [], []
    names = iter("ijklmnop")
    star = rng.randrange(6)
    for index in range(rng.randint(1, 4)):
        if index:
            said.append(".")
            tokens.append(".")
        match rng.randrange(5) if index != star else 5:
            case 0 | 1:
                text = rng.choice(["a", "b", "ab", "a1"])
                said.append(text)
                tokens.append(text)
            case 2:
                name = next(names)
                said.append(f"{{{name}}}")
                tokens.append(("part", name))
            case 3:
                name = next(names)
                tail = rng.choice(["", "a", "_b"])
                said.append(f"a{{{name}}}{tail}")
                tokens += ["a", ("int", name), *([tail] if tail else [])]
            case 4:
                name = next(names)
                texts = rng.sample(["a", "b", "1", "10", "2"], 3)
                said.append(f"{{{name}:{'|'.join(texts)}}}")
                tokens.append((name, texts))
            case _:
                said.append("*")
                tokens.append(("star",))
    return "".join(said), tokens


def test_patterns_agree_with_the_reference(fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    matched = 0
    for _ in range(3000):
        text, tokens = random_pattern(rng)
        pattern = Pattern(text)
        name = ".".join(
            rng.choice(["a", "b", "ab", "a1", "a10", "a1a", "a2_b", "1", "10", "2"]) for _ in range(rng.randint(1, 4))
        )
        if rng.random() < 0.5:  # a name that fits
            name = "".join(
                t
                if isinstance(t, str)
                else {"int": "7", "part": "x1", "star": rng.choice(["q", "q.r"])}.get(t[0]) or rng.choice(t[1])
                for t in tokens
            )
        beginnings = [name]
        if ("star",) not in tokens:
            beginnings += [name[:at] for at, c in enumerate(name) if c == "."]
        expected = [found for start in beginnings for found in ways(tokens, start)]
        found = pattern.match(name.split("."))
        assert (found is not None) == bool(expected), (text, name)
        if found is not None:
            matched += 1
            assert dict(found.taken) in expected, (text, name, found)
    assert matched > 500


def test_a_map_is_a_bijection_and_has_no_order(fuzz_seed: int) -> None:
    """Rules that swap the sides undo a map, and the order of rules and names has no meaning."""
    rng = random.Random(fuzz_seed)
    rules = {
        "layer{s}.{u}.conv{c}": "stage.{s-1}.unit.{u}.c{c+2}",
        "layer{s}.{u}.bn{c}.{p:weight|bias}": "stage.{s-1}.unit.{u}.n{c}.{p:gamma|beta}",
        "fc": "head",
        "model.*": "*",
    }
    back = {
        "stage.{s}.unit.{u}.c{c}": "layer{s+1}.{u}.conv{c-2}",
        "stage.{s}.unit.{u}.n{c}.{p:gamma|beta}": "layer{s+1}.{u}.bn{c}.{p:weight|bias}",
        "head": "fc",
        "{x:tok|pos}": "model.{x}",
    }
    ends = ("conv1.weight", "bn2.weight", "bn2.bias")
    names = [f"layer{s}.{u}.{x}" for s, u, x in itertools.product(range(1, 12), range(3), ends)]
    names += ["fc.weight", "model.tok", "model.pos.weight"]
    first = dict(NameMap.of(rules).naming(names, "here").made)
    assert len(first) == len(names) and not set(first) & set(names)
    again = NameMap.of(back).naming(first, "here").made
    assert {again[name].pieces[0]: name for name in again} == {new: origin.pieces[0] for new, origin in first.items()}
    for _ in range(10):
        shuffled = NameMap.of(dict(rng.sample(list(rules.items()), len(rules))))
        assert dict(shuffled.naming(rng.sample(names, len(names)), "here").made).keys() == first.keys()
        assert {n: o.pieces for n, o in shuffled.naming(names, "here").made.items()} == {
            n: o.pieces for n, o in first.items()
        }


def test_the_rule_that_says_most_applies() -> None:
    rules: dict[str, object] = {"*": "net.*", "a": "x", "a.{i}.w": "y.{i}", "*.n": None, "a.1.w": "one"}
    assert rename(rules, "a.0.w", "a.1.w", "a.2.n", "a.b", "q.r") == ["y.0", "one", "x.b", "net.q.r"]
    with pytest.raises(ArtifactError, match="equally well") as caught:
        rename({"a.{i}": "x.{i}", "{j}.b": "y.{j}"}, "a.b", "a.c", "c.b")
    assert caught.value.code == "R305" and caught.value.help


def test_required_rules_name_the_closest() -> None:
    with pytest.raises(ArtifactError, match=r"no tensor's name fits `layr\{s\}`") as caught:
        rename({"layr{s}": "x{s}"}, "layer1.w", "fc.w")
    assert caught.value.help == "did you mean `layer1`?"
    assert NameMap({"no": Rule.of("no", "x")}, ()).naming(["a"], "here").made.keys() == {"a"}  # as in a map file


TEXTS = "|".join("a" * n for n in range(1, 40))
LONG = [f"{'a.' * 500}{n}" for n in range(4000)]


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ([f"*.a{{i}}.{k}" for k in range(250)], LONG),
        ([f"{{i}}.{'a.' * 480}b{k}" for k in range(250)], LONG),
        ([f"{{i}}.*.b{k}" for k in range(250)], LONG),
        (["a" * k for k in range(1, 1000)], [f"{'a' * 1000}{n}" for n in range(4000)]),
        ([f"x{{i}}.{k}" for k in range(3000)], [f"{n}.w" for n in range(4000)]),
        ([f"{{i}}_{{j}}_{{k}}_{n}" for n in range(999)], [f"1_2_3_{n}x" for n in range(4000)]),
        ([f"{{p:{TEXTS}}}b{k}" for k in range(300)], [f"{'a' * 1000}{n}" for n in range(4000)]),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_hostile_maps_and_names_are_refused_after_bounded_work(rules: list[str], names: list[str]) -> None:
    """Many patterns that almost fit many names: the work is bounded, whatever their form."""
    map = NameMap({old: Rule.of(old, None) for old in rules}, ())
    with pytest.raises(ArtifactError, match="too many to compare"):
        map.naming(names, "here")


def test_a_map_of_too_many_places_is_refused() -> None:
    with pytest.raises(BadRule, match="at most 4,000 places"):
        NameMap.of({f"{'.'.join(f'{{i{n}}}' for n in range(16))}.{k}": None for k in range(251)})
    with pytest.raises(BadRule, match="at most 10,000 rules"):
        NameMap.of({str(k): None for k in range(10_001)})


# -- values ---------------------------------------------------------------------------------------------------------


def tensor(array: np.ndarray) -> FileTensor:
    names = {"f4": "f32", "i8": "i64", "u2": "bf16"}
    return FileTensor(names[array.dtype.str[1:]], array.shape, np.frombuffer(array.tobytes(), np.uint8))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint16])
def test_values_are_joined_split_and_rearranged(dtype: type) -> None:
    w = np.arange(6 * 4).reshape(6, 4).astype(dtype)
    file = {
        "q.w": tensor(w[:2]),
        "k.w": tensor(w[2:4]),
        "v.w": tensor(w[4:]),
        "t": tensor(w),
        "cls": tensor(w[None, :1]),
    }
    have = NameMap.of(
        {
            "{p:q|k|v}.w": "qkv.w",
            "t": {"to": "{p:x|y|z}", "rearrange": "o i -> i o", "axis": 1},
            "cls": {"to": "cls", "rearrange": "1 1 d -> d"},
        }
    ).renamed(file, "here")
    assert np.array_equal(have["qkv.w"].array(), w)
    assert [have[n].shape for n in "xyz"] == [(4, 2)] * 3
    assert np.array_equal(np.concatenate([have[n].array() for n in "xyz"], 1), w.T)
    assert np.array_equal(have["cls"].array(), w[0])
    heads = NameMap.of(
        {
            "t": {
                "to": "{p:q|kv}",
                "rearrange": "(h two d) i -> (two h d) i",
                "sizes": {"h": 3, "two": 2},
                "parts": [1, 2],
            }
        }
    )
    with_parts = heads.renamed({"t": file["t"]}, "here")
    mixed = w.reshape(3, 2, 1, 4).transpose(1, 0, 2, 3).reshape(6, 4)
    assert np.array_equal(with_parts["q"].array(), mixed[:2]) and np.array_equal(with_parts["kv"].array(), mixed[2:])


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"{p:q|k|v}": "qkv"}, "the file lacks `v`"),
        ({"{p:q|t}": "qkv"}, "cannot be joined on axis 0"),
        ({"{p:q|k}": {"to": "x", "axis": 2}}, "has no axis 2"),
        ({"q": "{p:x|y|z}"}, "cannot be split into 3"),
        ({"q": {"to": "q", "rearrange": "a -> a"}}, "its shape [2, 4] is not that of"),
        ({"q": {"to": "q", "rearrange": "(a b) c -> a (b c)", "sizes": {"a": 3}}}, "is not that of"),
        ({"q": "k"}, "two tensors would be named `k`"),
        ({"q": "{p:x|k}"}, "two tensors would be named `k`"),
        ({"strange": {"to": "strange", "rearrange": "a -> a"}}, "dtype U16 is not supported"),
    ],
)
def test_values_that_do_not_fit_a_rule_are_refused(rules: dict[str, object], said: str) -> None:
    w = np.zeros((2, 4), np.float32)
    file = {"q": tensor(w), "k": tensor(w), "t": tensor(w.reshape(4, 2))}
    file["strange"] = replace(EMPTY, dtype="U16")
    with pytest.raises(ArtifactError) as caught:
        NameMap.of(rules).renamed(file, "here")
    assert caught.value.code == "R305" and said in caught.value.message and caught.value.help


@pytest.mark.parametrize(
    "rule",
    [
        {"to": "b.{j}", "in_order": False},
        {"to": "b.{j}", "in_order": 1},
        {"to": "b.{j}", "in_order": True, "axis": 0},
        {"to": "b.*", "in_order": True},
        {"to": "b.{j-1}", "in_order": True},
        {"in_order": True},
    ],
)
def test_malformed_rules_in_order_are_refused(rule: object) -> None:
    with pytest.raises(BadRule) as caught:
        NameMap.of({"a.{i}": rule})
    assert caught.value.help


def test_layers_in_order_skip_numbers_and_keep_their_kinds() -> None:
    rules = NameMap.of({"net.{i}": {"to": "stage.{s}.{m:conv|norm}", "in_order": True}, "fc": "head"})
    norm = ("weight", "bias", "running_mean")
    have = [f"net.{i}.weight" for i in (0, 3, 10)] + [f"net.{i}.{leaf}" for i in (1, 11) for leaf in norm]
    have += ["net.1.num_batches_tracked", "fc.weight"]
    models = [f"stage.{i}.conv.weight" for i in range(3)] + [f"stage.{i}.norm.{e}" for i in (0, 2) for e in norm]
    made = {origin.pieces[0]: new for new, origin in rules.naming(have, "here", [*models, "head.weight"]).made.items()}
    assert made["net.10.weight"] == "stage.2.conv.weight" and made["net.11.running_mean"] == "stage.2.norm.running_mean"
    assert made["net.3.weight"] == "stage.1.conv.weight" and made["net.1.num_batches_tracked"].startswith(
        "stage.0.norm"
    )
    assert set(models) < set(made.values()) and made["fc.weight"] == "head.weight"
    for count in (models[1:], [*models, "stage.3.conv.weight"]):
        with pytest.raises(ArtifactError, match="3 layers"):
            rules.naming(have, "here", count)


def test_an_integer_may_stand_before_listed_letters() -> None:
    """GoogLeNet's `inception3a`."""
    made = NameMap.of({"inception{s}{u:a|b}": "stage.{s-3}.{u:0|1}"}).naming(["inception4b.conv"], "here").made
    assert list(made) == ["stage.1.1.conv"]
    with pytest.raises(BadRule, match="not clear where the integer"):
        NameMap.of({"a{s}{u:x|1y}": "b.{s}.{u:0|1}"})
