"""The header of a GGUF file: its fields, and the names, types and shapes of its tensors.

Every count and length is compared with what is left of the file before anything of that size is
read (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). The package gguf does not do that:
a file of 100 bytes that announces 10¹² fields or a text of as many bytes keeps it busy until memory
or patience ends.
"""

import math
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.files.plain_files import open_to_read

MAGIC = b"GGUF"

_VERSIONS = (2, 3)
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Types of values that are numbers: their codes for `struct`."""
_STRING, _ARRAY = 8, 9
_LEAST_STRING, _LEAST_FIELD, _LEAST_TENSOR = 8, 13, 24  # bytes
_MOST_AXES = 4
_ALIGNMENT = "general.alignment"


class Tensor(NamedTuple):
    """A tensor, as the header describes it."""

    kind: str  # llama.cpp's name of its type
    shape: tuple[int, ...]


class Header(NamedTuple):
    """What a file says before its tensors."""

    fields: dict[str, Any]
    tensors: dict[str, Tensor]


def read_header(file: Path) -> Header:
    """Read the header of a GGUF file, and check that the file holds its tensors.

    Raises:
        ImportError: the package gguf is not installed.
        ValueError: the file is truncated, damaged, or of a version or with types not known.
    """
    with (
        open_to_read(file) as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return _Reader(content).header()


class _Reader:
    """A place in a file's content, little-endian."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.place = len(MAGIC)

    def header(self) -> Header:
        (version,) = self.numbers("I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version}; versions 2 and 3 are read")
        tensors, fields = self.numbers("QQ")
        self.fits(tensors, _LEAST_TENSOR, "tensors")
        self.fits(fields, _LEAST_FIELD, "fields")
        values = self.named(fields, self.field, "field")
        described = self.named(tensors, self.tensor, "tensor")
        alignment = values.get(_ALIGNMENT, 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"{_ALIGNMENT} is {alignment!r:.50}, not a power of two")
        start = -(-self.place // alignment) * alignment
        sizes = _block_sizes()
        checked = {}
        for name, (kind, shape, offset) in described.items():
            if kind not in sizes:
                raise ValueError(f"the tensor {name!r:.80} has the unknown type {kind}")
            title, block, block_bytes = sizes[kind]
            elements = math.prod(shape)
            if shape[0] % block or offset % alignment:
                raise ValueError(f"the tensor {name!r:.80} does not lie as {title} tensors do")
            if start + offset + elements // block * block_bytes > len(self.content):
                raise ValueError(f"the tensor {name!r:.80} ends beyond the file")
            checked[name] = Tensor(title, shape)
        return Header(values, checked)

    def numbers(self, codes: str) -> tuple[Any, ...]:
        """Return the numbers at this place, by `struct`'s codes, and go on behind them."""
        form = struct.Struct(f"<{codes}")
        if self.place + form.size > len(self.content):
            raise ValueError("it ends within its header")
        unpacked = form.unpack_from(self.content, self.place)
        self.place += form.size
        return unpacked

    def fits(self, count: int, least: int, what: str) -> None:
        """Raise a ValueError if so many things of at least so many bytes cannot follow."""
        if count * least > len(self.content) - self.place:
            raise ValueError(f"{count} {what} do not fit into it")

    def named(self, count: int, read: Callable[[], Any], what: str) -> dict[str, Any]:
        """Return that many things, each after its name, by name."""
        things: dict[str, Any] = {}
        for _ in range(count):
            name = self.string()
            if name in things:
                raise ValueError(f"the {what} {name!r:.80} is given twice")
            things[name] = read()
        return things

    def string(self) -> str:
        (length,) = self.numbers("Q")
        self.fits(length, 1, "bytes of text")
        start = self.place
        self.place = self.place + length
        return self.content[start : self.place].decode("utf-8")

    def field(self) -> Any:
        (kind,) = self.numbers("I")
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.numbers(_code(kind))[0]
        kind, count = self.numbers("IQ")
        if kind == _STRING:
            self.fits(count, _LEAST_STRING, "texts")
            return [self.string() for _ in range(count)]
        code = _code(kind)
        self.fits(count, struct.calcsize(code), "numbers")
        return list(self.numbers(f"{count}{code}"))

    def tensor(self) -> tuple[int, tuple[int, ...], int]:
        """Return a tensor's type, shape and offset."""
        (axes,) = self.numbers("I")
        if not 1 <= axes <= _MOST_AXES:
            raise ValueError(f"a tensor has {axes} axes; there can be 1 to {_MOST_AXES}")
        shape = self.numbers(f"{axes}Q")
        kind, offset = self.numbers("IQ")
        return kind, shape, offset


def _code(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a value has the unknown type {kind}")
    return _NUMBERS[kind]


def _block_sizes() -> dict[int, tuple[str, int, int]]:
    """Return of each type of tensor its name, and a block's elements and bytes."""
    from gguf import GGML_QUANT_SIZES  # an optional package

    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
