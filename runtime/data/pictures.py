"""Decodes pictures (PNG, JPEG, BMP, WebP) into rows, by pillow (extra ``images``), and JPEG faster by simplejpeg.

Pillow reads the header, so it decides what is accepted. Sizes are checked before a pixel is decoded. simplejpeg then
decodes the usual JPEG (8 bits; grey, or colours without CMYK). Both use libjpeg-turbo with the same settings and give
the same pixels; if simplejpeg finds any fault, pillow decodes. So the pixels do not depend on whether simplejpeg is
installed. They may depend on the version of libjpeg-turbo and pillow: ``decoder`` names these.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import EnvironmentFault
from dslc.base.version import install_extra
from dslc.base.words import reason
from dslc.runtime.data.kinds import LONGEST, UNCOVERS, other_kind
from dslc.runtime.data.rows import BadSample

if TYPE_CHECKING:
    from PIL import Image

_FORMATS: Final = ("PNG", "JPEG", "BMP", "WEBP")
MOST_PIXELS: Final = 64_000_000
LARGEST_FILE: Final = 64 << 20  # bytes
EMPTY: Final = "the file is empty"
#: Why a file is refused whose first bytes are those of no format.
_IMAGES: Final = f"images are in the formats {', '.join(_FORMATS)}"
_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
_WIDE: Final = ("I", "F", "I;32", "I;32B")  # pillow's modes of 32 bits
_JPEG_MODES: Final = {"RGB": "RGB", "L": "GRAY"}  # pillow's names and simplejpeg's
_ORIENTATION: Final = 0x0112  # the EXIF tag
#: A JPEG is decoded at a part of its size only if it is still so many times as large as wanted: pillow's own margin
#: for thumbnails (``reducing_gap``), which leaves the result nearly as good.
_MARGIN: Final = 2.0

#: Raised by pillow's decoders for damaged files.
_FAULTS: Final = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    struct.error,
    zlib.error,
)

#: Chooses the window (top, left, height, width) of a picture of this height and width.
Choose: TypeAlias = "Callable[[int, int], tuple[int, int, int, int]]"


@dataclass(frozen=True)
class PictureOptions:
    """``mask``: values are classes, so pixels are taken from the nearest place, and those of a palette are its indices.
    ``scaled``: a large JPEG is decoded at 1/2, 1/4 or 1/8 of its size. ``upright``: the EXIF orientation is applied."""

    mask: bool = False
    scaled: bool = False
    upright: bool = False

    def __str__(self) -> str:
        return f"{{scaled: {self.scaled}, upright: {self.upright}}}".lower()

    def as_data(self) -> dict[str, bool]:
        return asdict(self)


AS_STORED: Final = PictureOptions()


def require_pillow() -> None:
    """Raises EnvironmentFault R205 if pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise EnvironmentFault(
            "R205", "folders of images need pillow", place="data", help=install_extra("images")
        ) from error


#: The note of weights that says what decoded the pictures of their training.
NOTE: Final = "dslc.data.decoder"


def decoder() -> str:
    """The libraries that determine the pixels of decoded images, with versions."""
    import PIL
    from PIL import features

    jpeg = "libjpeg-turbo" if features.check("libjpeg_turbo") else "libjpeg"
    version = features.version("libjpeg_turbo") or features.version("jpg")
    fast = _simplejpeg()
    faster = "" if fast is None else f", simplejpeg {fast.__version__}"
    return f"pillow {PIL.__version__} with {jpeg} {version}{faster}"


def _simplejpeg() -> Any:
    """The module, or None if it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def layout(shape: tuple[int, ...]) -> tuple[int, int, int, bool]:
    """Channels, height, width of a row, and whether the channels are the first axis. ValueError for no image."""
    if len(shape) == 2:
        return 1, *shape, True
    if len(shape) == 3 and shape[0] in _MODES:
        return *shape, True
    if len(shape) == 3 and shape[2] in _MODES:
        return shape[2], shape[0], shape[1], False
    raise ValueError(f"a row of this input is {list(shape)}, which is not an image")


def no_picture(start: bytes) -> str:
    """Why a file that begins with ``start`` is no picture."""
    what, help = other_kind(start) or ("this is not an image", "")
    return f"{what}; {help if help in UNCOVERS else _IMAGES}"


def _why(error: Exception, start: bytes) -> str:
    from PIL import UnidentifiedImageError

    return no_picture(start) if isinstance(error, UnidentifiedImageError) else reason(error)


def _upper_bits(pixels: NDArray[np.uint16], *, exact: bool) -> NDArray[np.uint8]:
    """The upper 8 of 16 bits, as pillow takes them of colours. ``exact``: the values themselves, else ValueError."""
    if not exact:
        return (pixels >> 8).astype(np.uint8)
    if pixels.size and int(pixels.max()) > 255:
        raise ValueError(f"the value {int(pixels.max())} of a mask is above 255, of which its pixels have 16 bits")
    return pixels.astype(np.uint8)


def _require_values(image: Image.Image) -> None:
    """ValueError for a mask with colours: which class is a colour?"""
    if image.mode in ("L", "LA"):
        return
    red, green, blue = np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)
    if not (np.array_equal(red, green) and np.array_equal(red, blue)):
        at = int(np.argmax((red != green) | (red != blue)))
        colour = ", ".join(str(int(plane.flat[at])) for plane in (red, green, blue))
        raise ValueError(f"its pixels are colours, such as ({colour}), not the numbers of classes")


class Pictures:
    """Decodes pictures into rows u8 of one shape: [C, H, W], [H, W, C] or [H, W] with C = 1, 3 or 4."""

    def __init__(self, shape: tuple[int, ...], options: PictureOptions) -> None:
        """ValueError for a shape of no image; EnvironmentFault R205."""
        require_pillow()
        self._channels, self._height, self._width, self._first = layout(shape)
        self._shape, self._options = shape, options
        self._fast = _simplejpeg()

    def read(self, data: bytes, row: int, place: str, choose: Choose | None = None) -> NDArray[np.uint8]:
        """The picture in these bytes as a row; BadSample with ``row`` and ``place`` if it does not decode.

        A picture of another size is scaled until it covers the wanted size (bilinear), then cropped centrally. With
        ``choose``, that window of the picture is scaled to the wanted size.
        """
        try:
            pixels = self._decoded(data, choose)
        except _FAULTS as error:
            raise BadSample(row, place, _why(error, data[:LONGEST]) if data else EMPTY) from error
        return self._laid_out(pixels)

    def of_image(self, image: Image.Image) -> NDArray[np.uint8]:
        """An image of pillow as ``read`` gives it. ValueError if it cannot be decoded."""
        try:
            return self._laid_out(np.asarray(self._placed(self._converted(image), None, 1), np.uint8))
        except _FAULTS as error:
            raise ValueError(_why(error, b"")) from error

    def _laid_out(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """u8[H, W] or u8[H, W, C] in the shape of a row."""
        if pixels.ndim == 2:
            return pixels.reshape(self._shape)
        return np.moveaxis(pixels, -1, 0) if self._first else pixels

    def _decoded(self, data: bytes, choose: Choose | None) -> NDArray[np.uint8]:
        """u8[H, W] or u8[H, W, C]."""
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = None  # the limit below rejects large images, while pillow's own would first warn
        with catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{width} x {height} pixels, more than {MOST_PIXELS}")
            turn = image.getexif().get(_ORIENTATION) if self._options.upright else None
            if turn in (5, 6, 7, 8):
                width, height = height, width
            window = None if choose is None else choose(height, width)
            part = self._part(image, (height, width) if window is None else window[2:])
            found = self._pixels(image, data, part)
        if window is None and turn is None and found.shape == self._plain_shape:
            return found
        return np.asarray(self._placed(self._upright(Image.fromarray(found), turn), window, part), np.uint8)

    @property
    def _plain_shape(self) -> tuple[int, ...]:
        return (self._height, self._width, *(() if self._channels == 1 else (self._channels,)))

    def _part(self, image: Image.Image, size: tuple[int, ...]) -> int:
        """1, 2, 4 or 8: the picture is decoded at 1 of so many parts of its sides, of which ``size`` is wanted."""
        if not self._options.scaled or self._options.mask or image.format != "JPEG":
            return 1
        room = min(size[0] / self._height, size[1] / self._width) / _MARGIN
        return next((part for part in (8, 4, 2) if part <= room), 1)

    def _pixels(self, image: Image.Image, data: bytes, part: int) -> NDArray[np.uint8]:
        """The decoded picture in the wanted mode, at 1/``part`` of its size."""
        from PIL import Image

        mode = _MODES[self._channels]
        plain = self._jpeg(data, image.mode, image.size, part) if self._fast_for(image) else None
        if plain is not None:
            return plain if image.mode == mode else np.asarray(Image.fromarray(plain).convert(mode), np.uint8)
        if part > 1:
            image.draft(image.mode, (image.size[0] // part, image.size[1] // part))
        return np.asarray(self._converted(image), np.uint8)

    def _converted(self, image: Image.Image) -> Image.Image:
        """An image of pillow in the wanted mode. ValueError for pixels that 8 bits cannot hold, and for colours where
        the values of a mask are wanted."""
        from PIL import Image

        if image.mode.startswith("I;16"):
            # Pillow would make each value above 255 white.
            image = Image.fromarray(_upper_bits(np.asarray(image), exact=self._options.mask))
        elif image.mode in _WIDE:
            raise ValueError(f"its pixels have 32 bits (mode {image.mode}); save them as 8 or 16 bits")
        if self._options.mask and self._channels == 1:
            if image.mode == "P":
                return image
            if image.mode == "1":
                return Image.fromarray(np.asarray(image).astype(np.uint8))
            _require_values(image)
        return image.convert(_MODES[self._channels])

    def _fast_for(self, image: Image.Image) -> bool:
        """Whether simplejpeg may decode it: a mask with colours is refused, which needs them."""
        return image.format == "JPEG" and (image.mode == "L" or not self._options.mask)

    def _jpeg(self, data: bytes, mode: str, size: tuple[int, int], part: int) -> NDArray[np.uint8] | None:
        """The pixels of simplejpeg; None if pillow must decode."""
        if self._fast is None or mode not in _JPEG_MODES:
            return None
        width, height = (-(-side // part) for side in size)
        limits = {"min_height": height, "min_width": width} if part > 1 else {}
        try:
            found: NDArray[np.uint8] = self._fast.decode_jpeg(data, _JPEG_MODES[mode], **limits)
        except ValueError:  # also for faults that pillow tolerates, such as missing bytes after the last block
            return None
        if mode == "L":
            found = found.reshape(found.shape[:2])
        return found if found.shape[:2] == (height, width) else None

    def _upright(self, image: Image.Image, turn: int | None) -> Image.Image:
        from PIL.Image import Transpose

        turns = {
            2: Transpose.FLIP_LEFT_RIGHT,
            3: Transpose.ROTATE_180,
            4: Transpose.FLIP_TOP_BOTTOM,
            5: Transpose.TRANSPOSE,
            6: Transpose.ROTATE_270,
            7: Transpose.TRANSVERSE,
            8: Transpose.ROTATE_90,
        }
        return image if turn not in turns else image.transpose(turns[turn])

    def _placed(self, image: Image.Image, window: tuple[int, int, int, int] | None, part: int) -> Image.Image:
        """The picture, or a window of the picture before it was divided by ``part``, in the wanted size."""
        from PIL import ImageOps
        from PIL.Image import Resampling

        size = (self._width, self._height)
        way = Resampling.NEAREST if self._options.mask else Resampling.BILINEAR
        if window is None:
            return image if image.size == size else ImageOps.fit(image, size, way)
        top, left, tall, wide = window
        if part == 1 and (wide, tall) == size:
            return image.crop((left, top, left + wide, top + tall))
        right, low = min((left + wide) / part, image.size[0]), min((top + tall) / part, image.size[1])
        return image.resize(size, way, box=(left / part, top / part, right, low))
