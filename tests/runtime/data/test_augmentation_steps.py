"""Laws of every step of an augmentation, and what each one does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dslc.runtime.config.load import load_config
from dslc.runtime.data.augment import exact, policy, tones, warp
from dslc.runtime.data.augment.affine import around_centre
from dslc.runtime.data.augment.apply import KINDS, apply, as_data, check, of_data
from dslc.runtime.data.augment.step import Kept, Step
from dslc.runtime.data.augment.steps.blur import kernel
from dslc.runtime.data.augment.steps.resized_crop import ResizedCrop
from dslc.runtime.data.workers import Workers

#: One step of each kind, strong enough to change most images.
STRONG: dict[str, dict[str, Any]] = {
    "affine": {"rotate": 30.0, "translate": 0.2, "scale": (0.5, 2.0), "shear": 20.0},
    "blur": {"p": 1.0, "sigma": (1.0, 2.0)},
    "colour": {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.3},
    "crop": {"pad": 3},
    "cutout": {"size": 4},
    "erase": {"p": 1.0},
    "flip": {"p": 0.5},
    "grey": {"p": 0.5},
    "normalize": {"mean": (1.0,), "std": (2.0,)},
    "randaugment": {"ops": 3, "magnitude": 15},
    "resized_crop": {"area": (0.1, 0.9)},
    "rotate": {"degrees": 90.0},
    "trivialaugment": {},
}
#: The same step with a strength at which it changes nothing.
WEAK: dict[str, dict[str, Any]] = {
    "affine": {},
    "blur": {"p": 0.0},
    "colour": {},
    "cutout": {"size": 0},
    "erase": {"p": 0.0},
    "flip": {"p": 0.0},
    "grey": {"p": 0.0},
    "normalize": {"mean": (0.0,), "std": (1.0,)},
    "randaugment": {"ops": 0},
    "resized_crop": {"area": (1.0, 1.0), "ratio": (1.0, 1.0)},
    "rotate": {"degrees": 0.0},
}
LAYOUTS = [(3, 12, 12), (12, 12, 3), (12, 12)]


def strong(kind: str) -> Step:
    return KINDS[kind](**STRONG[kind])


def pixels(count: int, shape: tuple[int, ...] = (3, 12, 12), dtype: Any = np.uint8, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 256, (count, *shape))
    return found.astype(dtype)


def run(steps: tuple[Step, ...], batch: np.ndarray, rows: Any = None, *, seed: int = 3, epoch: int = 0) -> np.ndarray:
    rows = np.arange(len(batch)) if rows is None else np.asarray(rows)
    return apply(steps, batch.copy(), rows, seed, epoch, training=True)


def cases() -> list[tuple[str, tuple[int, ...], Any]]:
    """Every kind with each layout and dtype that it accepts."""
    found: list[tuple[str, tuple[int, ...], Any]] = []
    for kind in KINDS:
        for shape in LAYOUTS:
            for dtype in (np.uint8, np.int32, np.float32, np.float64):
                try:
                    check((strong(kind),), shape, np.dtype(dtype), np.dtype(dtype))
                except ValueError:
                    continue
                found.append((kind, shape, dtype))
    return found


def test_every_step_has_cases() -> None:
    assert set(STRONG) == set(KINDS) == {kind for kind, _, _ in cases()}
    assert set(WEAK) == set(KINDS) - {"crop", "trivialaugment"}, "whose draws always include a change"


@pytest.mark.parametrize(("kind", "shape", "dtype"), cases())
def test_shape_dtype_and_range_are_kept_and_the_rest_is_the_rows_own(kind: str, shape: Any, dtype: Any) -> None:
    batch, step = pixels(24, shape, dtype), strong(kind)
    found = run((step,), batch)
    assert found.shape == batch.shape and found.dtype == batch.dtype
    assert not np.array_equal(found, batch)
    if kind != "normalize":
        assert found.min() >= 0 and found.max() <= 255
    # The same rows in another order, one by one, in another batch: the same bits.
    for rows in ([5], [23, 5, 0], list(range(23, -1, -1))):
        assert np.array_equal(run((step,), batch[rows], rows), found[rows])


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"normalize"}))
def test_draws_follow_seed_epoch_and_row_and_evaluation_has_none(kind: str) -> None:
    batch, step = np.repeat(pixels(1), 32, axis=0), strong(kind)
    found = run((step,), batch)
    assert len({row.tobytes() for row in found}) > 1, "rows differ"
    assert not np.array_equal(found, run((step,), batch, seed=4))
    assert not np.array_equal(found, run((step,), batch, epoch=1))
    assert np.array_equal(apply((step,), batch.copy(), np.arange(32), 3, 0, training=False), batch)
    # A step's draws depend on its place, not on the steps before it.
    weak = (KINDS["rotate"](degrees=0.0), step)
    assert np.array_equal(run(weak, batch), run((Kept(), step), batch))
    assert not np.array_equal(run(weak, batch), found)


@pytest.mark.parametrize("kind", sorted(WEAK))
@pytest.mark.parametrize("shape", [(3, 12, 12), (12, 12, 3)])
def test_without_strength_nothing_changes(kind: str, shape: Any) -> None:
    batch = pixels(8, shape, np.float32 if kind == "normalize" else np.uint8)
    assert np.array_equal(run((KINDS[kind](**WEAK[kind]),), batch), batch)


def test_every_step_travels_as_data_and_has_a_mask() -> None:
    steps = tuple(strong(kind) for kind in KINDS)
    assert of_data(as_data(steps)) == steps
    masks = tuple(step.of_mask() for step in steps)
    assert of_data(as_data(masks)) == masks


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_mask_moves_as_its_image_and_keeps_its_values(kind: str) -> None:
    """An image of a few flat areas whose values name their class: after the step, the pixels that still have a class's
    value are where the mask has that class."""
    coarse = np.random.default_rng(1).integers(1, 5, (40, 3, 3))
    classes = np.repeat(np.repeat(coarse, 8, axis=1), 8, axis=2)
    image = np.repeat((classes * 50).astype("u1")[:, None], 3, axis=1)
    step = strong(kind)
    mask = run((step.of_mask(),), classes.astype("i4"))
    assert set(np.unique(mask)) <= {0, 1, 2, 3, 4}
    moves = not isinstance(step.of_mask(), Kept)
    assert moves == (not np.array_equal(mask, classes))
    if moves:
        # Only the geometry of the policies shows where pixels went.
        both = step if kind not in ("randaugment", "trivialaugment") else step.of_mask()
        moved = run((both,), image)[:, 0]
        sure = np.isin(moved, (50, 100, 150, 200))
        agree = (moved[sure] == 50 * mask[sure]).mean()
        assert sure.mean() > 0.3 and agree > 0.95


@pytest.mark.parametrize(("kind", "share"), [("flip", 0.3), ("grey", 0.3), ("blur", 0.3), ("erase", 0.3)])
def test_a_probability_is_the_share_of_changed_rows(kind: str, share: float) -> None:
    batch = pixels(1000, (3, 8, 8))
    found = run((KINDS[kind](p=share),), batch)
    changed = sum(not np.array_equal(a, b) for a, b in zip(found, batch))
    assert abs(changed - 1000 * share) < 60  # four standard deviations; the draws are fixed


# Geometry


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int32])
@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("nearest", [False, True])
def test_quarter_turns_are_rot90(dtype: Any, size: int, nearest: bool) -> None:
    image = pixels(1, (3, size, size), dtype)[0]
    for turns in range(-4, 5):
        matrix = around_centre((size, size), degrees=90.0 * turns)
        found = warp.transformed(image, matrix, nearest=nearest)
        assert np.array_equal(found, np.rot90(image, -turns, axes=(1, 2)))


@pytest.mark.parametrize("nearest", [False, True])
def test_whole_shifts_move_pixels_and_leave_zeros(nearest: bool) -> None:
    for dtype in (np.uint8, np.float64):
        image = pixels(1, (2, 6, 9), dtype)[0]
        for x, y in ((2, 0), (-3, 1), (0, -5), (8, 5), (9, 0), (0, 99), (-1000, 1000)):
            expected = np.zeros_like(image)
            tall, wide = max(0, 6 - abs(y)), max(0, 9 - abs(x))
            if tall and wide:
                to = (slice(max(0, y), max(0, y) + tall), slice(max(0, x), max(0, x) + wide))
                of = (slice(max(0, -y), max(0, -y) + tall), slice(max(0, -x), max(0, -x) + wide))
                expected[:, to[0], to[1]] = image[:, of[0], of[1]]
            found = warp.transformed(image, around_centre((6, 9), shift=(x, y)), nearest=nearest)
            assert np.array_equal(found, expected), (x, y)


def exact_sample(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Bilinear with zeros around, in f64."""
    total = np.zeros(len(image))
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
                total += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def test_between_pixels_values_are_bilinear_within_the_stated_error() -> None:
    rng = np.random.default_rng(2)
    for dtype, bound in ((np.uint8, 2.0), (np.float64, 2.0), (np.float32, 2.0)):
        image = pixels(1, (4, 9, 11), dtype)[0]
        y, x = rng.uniform(-3, 12, 200), rng.uniform(-3, 14, 200)
        places = [np.rint(each * warp.ONE).astype(np.int64)[None] for each in (y, x)]
        found = warp.sampled(image, places[0], places[1], nearest=False)[:, 0]
        expected = np.stack([exact_sample(image.astype(float), *at) for at in zip(y, x)], axis=1)
        assert np.abs(found - expected).max() < bound
        # On multiples of 1/256 a float has no error but that of its operations.
        if dtype != np.uint8:
            y, x = np.rint(y * 256) / 256, np.rint(x * 256) / 256
            places = [np.rint(each * warp.ONE).astype(np.int64)[None] for each in (y, x)]
            found = warp.sampled(image, places[0], places[1], nearest=False)[:, 0]
            expected = np.stack([exact_sample(image.astype(float), *at) for at in zip(y, x)], axis=1)
            assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_a_window_as_large_as_the_image_is_the_image_and_others_stay_inside() -> None:
    image = np.full((3, 10, 14), 200, np.uint8)
    for window in ((0, 0, 10, 14), (3, 4, 1, 1), (9, 13, 1, 1), (0, 5, 10, 2)):
        assert (warp.resized(image, window, nearest=False) == 200).all(), "no zeros from outside"
    ramp = np.tile(np.arange(14, dtype=np.uint8) * 10, (1, 10, 1))
    found = warp.resized(ramp, (0, 4, 10, 7), nearest=False)[0, 0]
    expected = np.clip((np.arange(14) + 0.5) / 2 - 0.5, 0, 6) * 10 + 40
    assert np.abs(found - expected).max() <= 0.5


def test_windows_have_the_shares_and_ratios_asked_for() -> None:
    from dslc.runtime.data.augment.draws import Stream

    step = ResizedCrop((0.2, 0.6), (0.5, 2.0))
    shares, ratios = [], []
    for row in range(2000):
        top, left, tall, wide = step.window(300, 400, Stream(1, 0, (0, 1, row, 1)))
        assert 0 <= top <= 300 - tall and 0 <= left <= 400 - wide and tall > 0 and wide > 0
        shares.append(tall * wide / 120000)
        ratios.append(wide / tall)
    assert min(shares) > 0.195 and max(shares) < 0.605 and abs(np.mean(shares) - 0.4) < 0.02
    assert min(ratios) > 0.49 and max(ratios) < 2.02 and abs(np.mean(np.log(ratios))) < 0.06
    # No window of this ratio fits: the largest one in the middle.
    assert ResizedCrop((1.0, 1.0), (4.0, 4.0)).window(300, 400, Stream(1, 0, (0, 1, 0, 1))) == (100, 0, 100, 400)


# Exact functions


def test_exact_functions_agree_with_the_c_library() -> None:
    for x in np.linspace(-20.0, 20.0, 2001):
        assert math.isclose(exact.exp(x), math.exp(x), rel_tol=1e-14)
        assert math.isclose(exact.log(math.exp(x)), x, rel_tol=1e-13, abs_tol=1e-14)
        sine, cosine = exact.sin_cos(x * 30)
        assert abs(sine - math.sin(math.radians(x * 30))) < 1e-13
        assert abs(cosine - math.cos(math.radians(x * 30))) < 1e-13
    assert [exact.sin_cos(90.0 * at) for at in range(4)] == [(0, 1), (1, 0), (0, -1), (-1, 0)]
    assert exact.exp(0.0) == 1.0 and exact.log(1.0) == 0.0


# Colours


def test_colours_by_their_definition() -> None:
    image = pixels(1, (3, 20, 20))[0]
    wide = image.astype(float)
    grey = tones.grey(image)
    assert np.abs(grey - (0.299 * wide[0] + 0.587 * wide[1] + 0.114 * wide[2])).max() <= 0.51
    for factor in (0.0, 0.3, 1.0, 1.7):
        mean = round(grey.mean())
        for found, expected in (
            (tones.brightness(image, factor), wide * factor),
            (tones.contrast(image, factor), mean + (wide - mean) * factor),
            (tones.saturation(image, factor), grey + (wide - grey) * factor),
        ):
            assert np.abs(found - np.clip(expected, 0, 255)).max() <= 0.51, factor
    assert np.array_equal(tones.posterized(image, 3), image & 0xE0)
    assert np.array_equal(tones.posterized(image, 8), image)
    assert np.array_equal(tones.inverted_above(image, 128), np.where(image >= 128, 255 - image, image))
    stretched = tones.stretched(np.clip(image, 50, 150))
    assert stretched.min() == 0 and stretched.max() == 255
    flat = np.full((3, 4, 4), 7, np.uint8)
    assert np.array_equal(tones.stretched(flat), flat) and np.array_equal(tones.equalized(flat), flat)


def test_a_third_of_the_hue_circle_exchanges_the_channels() -> None:
    image = pixels(1, (3, 30, 30))[0]
    found = tones.hue(image, 1 / 3)
    assert np.abs(found.astype(int) - image[[2, 0, 1]]).max() <= 1
    assert np.array_equal(tones.hue(image, 0.0), image)
    assert np.array_equal(tones.hue(np.repeat(image[:1], 3, axis=0), 0.4), np.repeat(image[:1], 3, axis=0))


@pytest.mark.parametrize("table", [policy.RAND, policy.WIDE])
def test_solarize_inverts_from_the_exact_threshold(table: Any) -> None:
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    for step in range(31):
        found = table["solarize"].apply(values, step / 30, negative=False, mask=False)
        expected = [255 - v if 30 * v >= 255 * (30 - step) else v for v in range(256)]
        assert found.reshape(-1).tolist() == expected, step


@pytest.mark.parametrize("amount", [0.09, -0.3, 0.99])
@pytest.mark.parametrize("axis", ["x", "y"])
def test_a_shear_leaves_the_corner_in_place(axis: str, amount: float) -> None:
    """Centres of pixels are at halves: the row whose centre is at y moves by amount * y."""
    [image] = pixels(1, (3, 20, 30))
    most, negative = policy.WIDE[f"shear_{axis}"].most, amount < 0
    found = policy.WIDE[f"shear_{axis}"].apply(image, abs(amount) / most, negative=negative, mask=False)
    wide = image if axis == "x" else image.swapaxes(1, 2)
    expected = np.zeros_like(wide)
    for line in range(wide.shape[1]):
        for at in range(wide.shape[2]):
            place = math.floor(at + 0.5 + amount * (line + 0.5))
            if 0 <= place < wide.shape[2]:
                expected[:, line, at] = wide[:, line, place]
    np.testing.assert_array_equal(found, expected if axis == "x" else expected.swapaxes(1, 2))


def test_blur_weights_sum_to_one_and_flat_images_stay() -> None:
    for sigma in (0.01, 0.1, 0.5, 1.0, 2.0, 16.0):
        weights = kernel(sigma)
        assert weights[0] + 2 * sum(weights[1:]) == 1 << 14 and min(weights) >= 0
    flat = np.full((4, 3, 5, 9), 255, np.uint8)
    assert np.array_equal(run((KINDS["blur"](p=1.0, sigma=(16.0, 16.0)),), flat), flat)


def test_erased_windows_have_the_value() -> None:
    batch = np.full((50, 3, 20, 20), 9, np.uint8)
    found = run((KINDS["erase"](p=1.0, area=(0.1, 0.2), value=77.0),), batch)
    shares = (found == 77).mean(axis=(1, 2, 3))
    assert set(np.unique(found)) == {9, 77} and shares.min() > 0.07 and shares.max() < 0.23
    found = run((KINDS["cutout"](size=6, value=1.0),), batch)
    areas = (found[:, 0] == 1).sum(axis=(1, 2))
    assert areas.max() == 36 and areas.min() >= 9, "the square's centre is inside"


# In the file


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_example_of_each_step_is_read(tmp_path: Any, kind: str) -> None:
    (tmp_path / "dslc.yaml").write_text(
        f"model: m.nn\ndata: {{augment: {{image: [{KINDS[kind].example}], mask: image}}}}\n"
    )
    found = load_config(tmp_path / "dslc.yaml").data.augment
    assert found["mask"] == "image"
    [step] = found["image"]
    assert type(step) is KINDS[kind]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[{resized_crop: {area: 0.5}}]", "a range of two numbers"),
        ("[{resized_crop: {area: [0.5, 0.1]}}]", "starts at 0.5"),
        ("[{resized_crop: {area: [0, 2]}}]", "out of range"),
        ("[{rotate: {}}]", "needs `degrees`"), ("[{rotate: 900}]", "out of range"), ("[{rotate: a}]", "is a number"),
        ("[{color: {hue: 0.1}}]", "unknown key `color`"), ("[{colour: {hue: 0.6}}]", "out of range"),
        ("[{randaugment: {mask: true}}]", "unknown key `mask`"), ("[{randaugment: 2}]", "is a mapping"),
        ("[{kept: {}}]", "unknown key `kept`"), ("[{rotate: {degrees: 3, nearest: 1}}]", "is true or false"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_with_their_place(tmp_path: Any, text: str, says: str, refused: Any) -> None:
    (tmp_path / "dslc.yaml").write_text(f"model: m.nn\ndata: {{augment: {{image: {text}}}}}\n")
    error = refused(lambda: load_config(tmp_path / "dslc.yaml"))
    assert error.code == "R104" and says in error.message and "dslc.yaml:2:" in str(error.place)


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "says"),
    [
        ("colour", (3, 8, 8), "f4", "before `normalize`"), ("colour", (1, 8, 8), "u1", "3 channels"),
        ("grey", (8, 8), "u1", "3 channels"), ("randaugment", (4, 8, 8), "u1", "3 channels"),
        ("rotate", (7,), "f4", "is not an image"), ("erase", (9, 9, 9), "f4", "is not an image"),
        ("blur", (8, 8), "i4", "from 0 to 255"),
    ],
)  # fmt: skip
def test_rows_that_a_step_cannot_take(kind: str, shape: Any, dtype: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check((strong(kind),), shape, np.dtype(dtype), np.dtype(dtype))


def test_a_value_that_the_pixels_cannot_hold() -> None:
    for kind, value in (("erase", -1.0), ("cutout", 0.5), ("erase", 256.0)):
        step = KINDS[kind](**{**STRONG[kind], "value": value})
        with pytest.raises(ValueError, match="does not hold"):
            check((step,), (3, 8, 8), np.dtype("u1"), np.dtype("u1"))
        check((step,), (3, 8, 8), np.dtype("f4"), np.dtype("f4"))


# Datasets


LIST = tuple(strong(kind) for kind in ("resized_crop", "flip", "rotate", "colour", "randaugment", "normalize", "erase"))


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_u8_files_are_augmented_before_they_become_floats(tmp_path: Any, opened: Any, form: str) -> None:
    batch = pixels(12)
    masks = pixels(12, (12, 12))
    np.save(tmp_path / "x.npy", batch)
    np.savez(tmp_path / "x.npz", x=batch)
    np.save(tmp_path / "m.npy", masks)
    name = f"{tmp_path}/x.npy" if form == "npy" else f"{tmp_path}/x.npz:x"
    data = opened(
        x=(name, "f32", ("B", 3, 12, 12)),
        m=(f"{tmp_path}/m.npy", "i32", ("B", 12, 12)),
        augment={"x": LIST, "m": "x"},
        seed=3,
    )
    found = data.take(np.arange(12), 2)
    early = run(LIST[:5], batch, epoch=2)
    expected = apply(LIST[5:], early.astype("f4"), np.arange(12), 3, 2, training=True, first=5)
    assert found["x"].dtype == np.float32 and found["x"].tobytes() == expected.tobytes()
    mask = run(tuple(step.of_mask() for step in LIST), masks.astype("i4"), epoch=2)
    assert np.array_equal(found["m"], mask)
    still = opened(x=(name, "f32", ("B", 3, 12, 12)), augment={"x": LIST}, training=False).take(np.arange(12))["x"]
    assert np.array_equal(still, (batch.astype("f4") / np.float32(1) - np.float32(1)) / np.float32(2))


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_workers_change_no_bit(tmp_path: Any, opened: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pixels(40)
    np.save(tmp_path / "x.npy", batch)
    np.savez(tmp_path / "x.npz", x=batch)
    name = f"{tmp_path}/x.npy" if form == "npy" else f"{tmp_path}/x.npz:x"
    started: list[int] = []

    def counted(*args: Any, count: int, **options: Any) -> Workers:
        started.append(count)
        return Workers(*args, count=count, **options)

    monkeypatch.setattr("dslc.runtime.train.data.Workers", counted)
    tasks = [(np.random.default_rng(number).permutation(40)[:4], number) for number in range(6)]
    found = []
    for workers in (0, 1, 3):
        data = opened(x=(name, "f32", ("B", 3, 12, 12)), augment={"x": LIST})
        found.append([each["x"].tobytes() for each in data.feed(iter(tasks), workers)])
    assert found[0] == found[1] == found[2]
    assert started == [1, 3], "costly steps are done by the workers"


def test_a_mask_of_nothing_is_refused(tmp_path: Any, opened: Any, refused: Any) -> None:
    np.save(tmp_path / "x.npy", pixels(4))
    x = (f"{tmp_path}/x.npy", "u8", ("B", 3, 12, 12))
    for augment in ({"x": "y"}, {"x": "x"}, {"x": "y", "y": "x"}):
        error = refused(lambda augment=augment: opened(x=x, y=x, augment=augment))
        assert error.code == "R102" and "has no list of steps" in error.message
