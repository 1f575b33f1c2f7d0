"""Images of outputs, decoded within bounds: their bytes are untrusted."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageOps

IMAGE_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
"""What is compared by pixels, and Pillow's name of it."""
MAX_BYTES = 32 << 20
MAX_PIXELS = 16_000_000
"""64 MB in memory."""
_EXACT_MODES = frozenset({"1", "L", "I", "F", "I;16", "I;16B", "I;16L"})
"""Whose values a conversion to 8-bit colours would cut or keeps anyway."""


class UnreadableImage(Exception):
    """The image cannot be decoded, or must not be; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelComparison:
    """How two images differ.

    Attributes:
        changed_count: pixels that are not the same; None where the sizes differ.
        total_count: pixels of the first.
        sizes: width and height of each.
    """

    changed_count: int | None
    total_count: int
    sizes: tuple[tuple[int, int], tuple[int, int]]

    @property
    def is_same(self) -> bool:
        """Return whether every pixel is the same."""
        return self.changed_count == 0

    def __str__(self) -> str:
        if self.changed_count is None:
            (width, height), (other_width, other_height) = self.sizes
            return f"{width} x {height} became {other_width} x {other_height} pixels"
        return f"{self.changed_count:,} of {self.total_count:,} pixels differ"


def decoded(text: str, mime: str) -> Image.Image:
    """Return an image of an output, upright, in colours that can be compared.

    Args:
        text: base64.
        mime: one of `IMAGE_FORMATS`.

    Raises:
        UnreadableImage: it is broken, too large, or has several frames.
    """
    if len(text) > MAX_BYTES * 4 // 3:
        raise UnreadableImage(f"larger than {MAX_BYTES:,} bytes")
    try:
        data = base64.b64decode(text.encode("ascii", "replace"))
    except binascii.Error as problem:
        raise UnreadableImage(f"not base64: {problem}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return _opened(data, IMAGE_FORMATS[mime])
    except UnreadableImage:
        raise
    except Exception as problem:  # noqa: BLE001  (decoders of hostile bytes raise whatever comes)
        raise UnreadableImage(f"broken: {type(problem).__name__}") from None


def compared_pixels(one: Image.Image, other: Image.Image) -> PixelComparison:
    """Return how two decoded images differ."""
    total_count = one.width * one.height
    sizes = (one.size, other.size)
    if one.size != other.size:
        return PixelComparison(changed_count=None, total_count=total_count, sizes=sizes)
    if one.mode == other.mode and one.tobytes() == other.tobytes():
        return PixelComparison(changed_count=0, total_count=total_count, sizes=sizes)
    same_count = changed_pixels(one, other).histogram()[0]
    # Values that differ in more than 8 bits show may look the same.
    changed_count = max(total_count - same_count, 1)
    return PixelComparison(changed_count=changed_count, total_count=total_count, sizes=sizes)


def changed_pixels(one: Image.Image, other: Image.Image) -> Image.Image:
    """Return, in grey, how far each pixel of two images of one size is apart (0 = the same)."""
    difference = ImageChops.difference(one.convert("RGBA"), other.convert("RGBA"))
    bands = difference.split()
    furthest = bands[0]
    for band in bands[1:]:
        furthest = ImageChops.lighter(furthest, band)
    return furthest


def as_png(image: Image.Image, max_side: int) -> bytes:
    """Return an image written anew, no larger than ``max_side`` pixels in width and height."""
    shown = image.convert("RGBA")
    if max(shown.size) > max_side:
        shown.thumbnail((max_side, max_side))
    written = io.BytesIO()
    shown.save(written, "PNG")
    return written.getvalue()


def _opened(data: bytes, form: str) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=[form]) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise UnreadableImage(f"{width} x {height} pixels are more than {MAX_PIXELS:,}")
        if getattr(image, "n_frames", 1) > 1:
            raise UnreadableImage("has several frames")
        upright = ImageOps.exif_transpose(image)
        return upright.copy() if upright.mode in _EXACT_MODES else upright.convert("RGBA")
