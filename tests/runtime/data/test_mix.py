"""Mixup and cutmix: what is mixed with what, the shares, determinism, evaluation, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thinning import taken

from dslc.runtime.config.load import load_config
from dslc.runtime.data.augment.draws import Stream
from dslc.runtime.data.augment.mix import Mix, beta
from dslc.runtime.data.augment.steps.flip import Flip
from dslc.runtime.data.augment.steps.rotate import Rotate

NAMES = {"image": "image", "label": "label", "other": "label_b", "share": "lam"}
MIXUP, CUTMIX, BOTH = Mix(**NAMES, mixup=0.4), Mix(**NAMES, cutmix=1.0), Mix(**NAMES, mixup=0.4, cutmix=1.0)
LAYOUTS = [(3, 8, 8), (8, 8, 3), (8, 8)]


@pytest.fixture
def inputs(tmp_path: Path) -> Any:
    """The inputs of a model: row i's image has the value 4 i, its label is i."""

    def make(shape: tuple[int, ...] = (3, 8, 8), dtype: str = "u8", form: str = "npy") -> dict[str, Any]:
        rows = 40
        pixels = np.broadcast_to(4 * np.arange(rows).reshape(-1, *[1] * len(shape)), (rows, *shape)).astype("u1")
        np.savez(tmp_path / "x.npz", x=pixels)
        np.save(tmp_path / "x.npy", pixels)
        np.save(tmp_path / "y.npy", np.arange(rows))
        return {
            "image": (f"{tmp_path}/x.{form}" + (":x" if form == "npz" else ""), dtype, ("B", *shape)),
            "label": (f"{tmp_path}/y.npy", "i32", ("B",), (0, rows)),
        }

    return make


GIVEN = {"label_b": (None, "i32", ("B",)), "lam": (None, "f32", ("B",))}


@pytest.mark.parametrize("mix", [MIXUP, CUTMIX, BOTH])
@pytest.mark.parametrize("shape", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u8", "f32"])
def test_the_share_of_each_label_is_that_of_its_image(
    inputs: Any, opened: Any, mix: Mix, shape: Any, dtype: str
) -> None:
    data = opened(**inputs(shape, dtype), **GIVEN, mix=mix)
    shares = []
    for epoch in range(20):
        rows = np.random.default_rng(epoch).permutation(40)[:8]
        batch = data.take(rows, epoch)
        assert batch["label"].tolist() == rows.tolist() and batch["label_b"].tolist() == np.roll(rows, -1).tolist()
        image = batch["image"]
        assert image.shape == (8, *shape) and image.dtype == {"u8": np.uint8, "f32": np.float32}[dtype]
        lam = batch["lam"]
        assert lam.dtype == np.float32 and lam.shape == (8,) and (lam == lam[0]).all() and 0 <= lam[0] <= 1
        expected = 4 * (lam * rows + (1 - lam) * np.roll(rows, -1))
        found = image.reshape(8, -1).astype(float).mean(axis=1)
        assert np.abs(found - expected).max() < (0.6 if dtype == "u8" else 1e-3)
        shares.append(lam[0])
    assert len(set(shares)) > 4


def test_cutmix_pastes_a_window_and_mixup_blends(inputs: Any, opened: Any) -> None:
    rows = np.arange(8)
    for epoch in range(10):
        batch = opened(**inputs(), **GIVEN, mix=CUTMIX).take(rows, epoch)
        for row, image in zip(rows, batch["image"]):
            assert set(np.unique(image)) <= {4 * row, 4 * ((row + 1) % 8)}
        blended = opened(**inputs(), **GIVEN, mix=MIXUP).take(rows, epoch)
        assert all(len(np.unique(image)) == 1 for image in blended["image"])


@pytest.mark.parametrize(("mix", "form"), taken([(MIXUP, "npy"), (CUTMIX, "npz"), (MIXUP, "npz"), (CUTMIX, "npy")], 2))
def test_workers_change_no_bit_and_draws_follow_seed_epoch_and_batch(
    inputs: Any, opened: Any, form: str, mix: Mix
) -> None:
    tasks = [(np.random.default_rng(number).permutation(40)[:8], number) for number in range(5)]
    found = []
    for workers in (0, 1, 3):
        data = opened(**inputs(form=form), **GIVEN, mix=mix, augment={"image": (Flip(0.5), Rotate(20.0))})
        found.append(
            [{name: array.tobytes() for name, array in each.items()} for each in data.feed(iter(tasks), workers)]
        )
    assert found[0] == found[1] == found[2]
    shares = [opened(**inputs(), **GIVEN, mix=mix, seed=seed).take(tasks[0][0], epoch)["lam"][0] for seed, epoch in
              ((7, 0), (8, 0), (7, 1))]  # fmt: skip
    assert len(set(shares)) == 3


def test_evaluation_and_held_back_rows_are_not_mixed(inputs: Any, opened: Any) -> None:
    for data in (
        opened(**inputs(), **GIVEN, mix=BOTH, training=False),
        opened(**inputs(), **GIVEN, mix=BOTH).parted(0.5)[1],
    ):
        rows = data.index[:8]
        batch = data.take(rows)
        assert (batch["lam"] == 1).all() and np.array_equal(batch["label"], batch["label_b"])
        assert np.array_equal(batch["image"][:, 0, 0, 0], 4 * rows)


def test_a_share_of_batches_is_mixed(inputs: Any, opened: Any) -> None:
    data = opened(**inputs(), **GIVEN, mix=Mix(**NAMES, mixup=1.0, p=0.25))
    mixed = sum(bool((data.take(np.arange(4), epoch)["lam"] < 1).all()) for epoch in range(200))
    assert 30 < mixed < 70


@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.4, 1.0, 4.0])
def test_shares_have_the_moments_of_the_beta_distribution(alpha: float) -> None:
    shares = np.array([beta(alpha, Stream(1, 0, (0, 0, row, 2))) for row in range(2000)])
    assert shares.min() >= 0 and shares.max() <= 1
    assert abs(shares.mean() - 0.5) < 0.03 and abs(shares.var() - 0.25 / (2 * alpha + 1)) < 0.02


def test_inputs_that_do_not_fit_are_refused(inputs: Any, opened: Any, refused: Any) -> None:
    good = {**inputs(), **GIVEN}
    wrong = [
        ({**good, "lam": (None, "i32", ("B",))}, MIXUP, "one float per row"),
        ({**good, "lam": (None, "f32", ("B", 2))}, MIXUP, "one float per row"),
        ({**good, "label_b": (None, "i64", ("B",))}, MIXUP, "another tensor"),
        ({**good, "label_b": good["label"]}, MIXUP, "comes from data.mix"),
        (good, Mix(**{**NAMES, "other": "label_c"}, mixup=1.0), "no input `label_c`"),
        ({**good, "image": (good["image"][0], "i32", good["image"][2])}, MIXUP, "floats or u8"),
    ]
    for given, mix, says in wrong:
        error = refused(lambda given=given, mix=mix: opened(**given, mix=mix))
        assert error.code in ("R102", "R104") and says in error.message, says
    error = refused(lambda: opened(**inputs((9, 9, 9)), **GIVEN, mix=CUTMIX))
    assert "not an image" in error.message


def test_the_options_in_the_file(tmp_path: Path, refused: Any) -> None:
    def load(text: str) -> Any:
        (tmp_path / "dslc.yaml").write_text(f"model: m.nn\ndata: {{mix: {text}}}\n")
        return load_config(tmp_path / "dslc.yaml").data.mix

    names = "image: image, label: label, other: label_b, share: lam"
    assert load(f"{{{names}, mixup: 0.4, cutmix: 1}}") == BOTH
    wrong = {
        "{mixup: 0.2}": "needs `image`",
        f"{{{names}}}": "needs `mixup` or `cutmix`",
        f"{{{names}, mixup: 5}}": "out of range",
        f"{{{names}, mixup: 0.001}}": "from 0.01",
        f"{{{names}, mixup: 1, q: 2}}": "unknown key `q`",
        "fast": "is a mapping",
        "{image: x, label: x, other: y, share: z, mixup: 1}": "an input twice",
        f"{{{names}, p: 2}}": "out of range",
    }
    for text, says in wrong.items():
        error = refused(lambda text=text: load(text))
        assert error.code == "R104" and says in error.message, text
