"""Flip, crop, normalize: what they do, and that their draws depend on (seed, epoch, row) alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dslc.runtime.config.load import load_config
from dslc.runtime.data.augment.apply import apply, as_data, check, of_data
from dslc.runtime.data.augment.draws import StepDraws
from dslc.runtime.data.augment.steps.crop import Crop
from dslc.runtime.data.augment.steps.flip import Flip
from dslc.runtime.data.augment.steps.normalize import Normalize
from dslc.runtime.train.data import shuffled

STEPS = (Flip(0.5), Crop(2))


def images(count: int, shape: tuple[int, ...] = (3, 6, 5)) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, *shape)).astype("f4")


def run(steps: Any, rows: list[int], pixels: np.ndarray, *, seed: int = 3, epoch: int = 0) -> np.ndarray:
    return apply(steps, pixels[rows], np.array(rows), seed, epoch, training=True)


def test_a_row_is_changed_alike_in_every_batch() -> None:
    pixels = images(40)
    whole = run(STEPS, list(range(40)), pixels)
    for rows in ([7], [39, 7, 0], list(range(39, -1, -1))):
        assert run(STEPS, rows, pixels).tobytes() == whole[rows].tobytes()


def test_seed_and_epoch_change_the_draws_and_evaluation_has_none() -> None:
    pixels, rows = images(40), list(range(40))
    first = run(STEPS, rows, pixels)
    assert first.tobytes() == run(STEPS, rows, pixels).tobytes()
    assert not np.array_equal(first, run(STEPS, rows, pixels, seed=4))
    assert not np.array_equal(first, run(STEPS, rows, pixels, epoch=1))
    still = apply(STEPS, pixels.copy(), np.arange(40), 3, 0, training=False)
    assert np.array_equal(still, pixels)


def test_flip_mirrors_about_half_of_the_rows() -> None:
    pixels = images(1000, (2, 3))
    found = run((Flip(0.5),), list(range(1000)), pixels)
    flipped = [np.array_equal(a, b[:, ::-1]) for a, b in zip(found, pixels)]
    kept = [np.array_equal(a, b) for a, b in zip(found, pixels)]
    assert all(f != k for f, k in zip(flipped, kept)) and 430 < sum(flipped) < 570
    assert np.array_equal(run((Flip(1.0),), [0, 1], pixels), pixels[[0, 1], :, ::-1])
    assert np.array_equal(run((Flip(0.0),), [0, 1], pixels), pixels[[0, 1]])


def test_a_draw_is_below_p_and_never_reaches_it() -> None:
    """The smallest and the largest draw, and those on both sides of p: p = 0 flips no row, p = 1 every row."""

    class Given(StepDraws):
        def __init__(self) -> None: ...

        def pairs(self) -> Any:
            return np.array([0, (1 << 63) - (1 << 11), 1 << 63, (1 << 64) - 1], np.uint64)[:, None]

    for p, flipped in ((0.0, [0, 0, 0, 0]), (0.5, [1, 1, 0, 0]), (1.0, [1, 1, 1, 1])):
        found = Flip(p).apply(images(4, (2, 3)), Given())
        kept = [np.array_equal(a, b) for a, b in zip(found, images(4, (2, 3)))]
        assert [not k for k in kept] == list(map(bool, flipped)), p


@pytest.mark.parametrize("shape", [(3, 6, 5), (6, 5, 3), (6, 5)])
def test_crop_is_a_window_of_the_padded_image_at_every_place(shape: tuple[int, ...]) -> None:
    pixels = images(300, shape)
    first = shape[0] == 3
    found = run((Crop(1),), list(range(300)), pixels)
    places = set()
    for old, new in zip(pixels, found):
        spatial = [(1, 1), (1, 1)]
        padded = np.pad(old, [(0, 0), *spatial] if first else [*spatial, (0, 0)][: old.ndim])
        fits = []
        for top in range(3):
            for left in range(3):
                window = (slice(top, top + 6), slice(left, left + 5))
                if np.array_equal(padded[(slice(None), *window)] if first else padded[window], new):
                    fits.append((top, left))
        assert len(fits) == 1
        places.add(fits[0])
    assert len(places) == 9


def test_normalize_by_channel_in_the_dtype_of_the_input() -> None:
    pixels = np.arange(2 * 3 * 2 * 2, dtype="f4").reshape(2, 3, 2, 2)
    step = Normalize((0.1, 0.2, 0.3), (0.5, 0.25, 2.0), 255.0)
    found = apply((step,), pixels.copy(), np.arange(2), 0, 0, training=False)
    mean, std = (np.array(v, "f4").reshape(3, 1, 1) for v in (step.mean, step.std))
    assert found.dtype == np.float32 and np.array_equal(found, (pixels / np.float32(255) - mean) / std)
    rows = np.arange(6, dtype="f8").reshape(2, 3)
    assert np.array_equal(
        apply((Normalize((1.0,), (2.0,)),), rows, np.arange(2), 0, 0, training=True),
        (np.arange(6).reshape(2, 3) - 1) / 2,
    )


@pytest.mark.parametrize("std", [(2.0,), (0.5, 0.25, 2.0)])
@pytest.mark.parametrize("shape", [(3, 5, 4), (5, 4, 3), (300, 200, 3)])
def test_normalize_is_three_rounded_operations_in_every_layout(shape: tuple[int, ...], std: tuple[float, ...]) -> None:
    pixels = images(7, shape)
    step = Normalize((0.1, 0.2, 0.3), std, 255.0)
    sizes = (3, 1, 1) if shape[0] == 3 else (3,)
    mean, deviation = (np.array(v, "f4").reshape(sizes if len(v) > 1 else ()) for v in (step.mean, step.std))
    expected = (pixels / np.float32(255) - mean) / deviation
    found = apply((step,), pixels.copy(), np.arange(7), 0, 0, training=False)
    assert found.dtype == np.float32 and found.tobytes() == expected.tobytes()


def test_inputs_with_the_same_list_move_together() -> None:
    image, mask = images(50, (3, 6, 5)), np.zeros((50, 6, 5), "i4")
    mask[...] = image[:, 0] > 0
    rows = list(range(50))
    moved = run(STEPS, rows, image)[:, 0] > 0
    assert np.array_equal(run(STEPS, rows, mask).astype(bool), moved)


def test_the_draws_are_not_those_of_the_order() -> None:
    """Row i's flip says nothing about where row i comes in the epoch."""
    pixels = images(2000, (1, 2))
    found = run((Flip(0.5),), list(range(2000)), pixels)
    flipped = np.array([not np.array_equal(a, b) for a, b in zip(found, pixels)])
    place = np.argsort(shuffled(3, 0, 2000))
    assert abs(np.corrcoef(flipped, place)[0, 1]) < 0.1


def test_steps_travel_as_data() -> None:
    steps = (Flip(0.25), Crop(4), Normalize((0.5,), (0.1, 0.2, 0.3), 255.0))
    assert of_data(as_data(steps)) == steps


@pytest.mark.parametrize(
    ("steps", "shape", "dtype", "says"),
    [
        ((Flip(0.5),), (7,), "f4", "is not an image"),
        ((Crop(1),), (9, 9, 9), "f4", "is not an image"),
        ((Crop(9),), (1, 8, 8), "f4", "pads by 9"),
        ((Normalize((0.0,), (1.0,)),), (1, 8, 8), "u1", "gives floats"),
        ((Normalize((0.0, 1.0), (1.0,)),), (3, 8, 8), "f4", "2 values for `mean`"),
    ],
)
def test_steps_that_do_not_fit(steps: Any, shape: tuple[int, ...], dtype: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check(steps, shape, np.dtype(dtype), np.dtype(dtype))


def test_a_dataset_refuses_them_in_the_words_of_the_file(tmp_path: Any, opened: Any, refused: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 7), "f4"))
    x = (f"{tmp_path}/x.npy", "f32", ("B", 7))
    error = refused(lambda: opened(x=x, augment={"x": STEPS}))
    assert error.code == "R104" and error.place == "data.augment.x"
    error = refused(lambda: opened(x=x, augment={"y": STEPS}))
    assert error.code == "R102" and error.place == "data.augment.y"


GOOD = """\
model: m.nn
data:
  augment:
    image: [{flip: 0.5}, {crop: {pad: 2}}, {normalize: {mean: 0.5, std: [1, 2, 3], scale: 255}}]
"""


def test_the_list_in_the_file(tmp_path: Any) -> None:
    (tmp_path / "dslc.yaml").write_text(GOOD)
    found = load_config(tmp_path / "dslc.yaml").data.augment
    assert found == {"image": (Flip(0.5), Crop(2), Normalize((0.5,), (1.0, 2.0, 3.0), 255.0))}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{flip: 0.5}", "is a list"), ("[]", "is a list"), ("[flip]", "one name with its value"),
        ("[{flip: 0.5, crop: {pad: 2}}]", "one name with its value"), ("[{flip: 1.5}]", "out of range"),
        ("[{flop: 0.5}]", "unknown key `flop`"), ("[{crop: 2}]", "is a mapping"), ("[{crop: {}}]", "needs `pad`"),
        ("[{crop: {pad: 0}}]", "out of range"), ("[{crop: {pda: 1}}]", "unknown key `pda`"),
        ("[{normalize: {mean: 0.5}}]", "needs `mean` and `std`"), ("[{normalize: {mean: 0, std: 0}}]", "by zero"),
        ("[{normalize: {mean: a, std: 1}}]", "is a number"), ("[{normalize: {mean: [], std: 1}}]", "is empty"),
    ],
)  # fmt: skip
def test_a_wrong_list_is_refused_with_its_place(tmp_path: Any, text: str, says: str, refused: Any) -> None:
    (tmp_path / "dslc.yaml").write_text(f"model: m.nn\ndata: {{augment: {{image: {text}}}}}\n")
    error = refused(lambda: load_config(tmp_path / "dslc.yaml"))
    assert error.code == "R104" and says in error.message and "dslc.yaml:2:" in str(error.place)
