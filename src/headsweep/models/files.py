"""Files of a model's folder, checked before a library reads them: JSON and safetensors headers.

Whatever a file holds, it is read within limits, or refused in one line that names it.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.errors import ModelError, quoted, reject_duplicate_keys
from headsweep.plain_files import open_to_read, read_plain

_LARGEST_HEADER = 100_000_000  # bytes; safetensors reads no larger one
# of a tensor
_MOST_AXES = 64
_LARGEST_SIZE = 1 << 63
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0"), 8),
    **dict.fromkeys(("I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits of an entry, by safetensors' name of its type."""


class Header(NamedTuple):
    """What stands at the beginning of a safetensors file."""

    content: bytes
    shapes: dict[str, list[int]]  # by the tensor's name


def read_json(file: Path, advice: str) -> Any:
    """Return the value of a JSON file; a ModelError says what is wrong, and ends in the advice."""
    try:
        return json.loads(read_plain(file).decode("utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{file} is missing; {advice}") from None
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}); {advice}") from None
    except RecursionError:
        raise ModelError(f"{file} is nested too deeply; {advice}") from None
    except ValueError as error:
        raise ModelError(f"{file} is not JSON ({error}); {advice}") from None


def read_object(file: Path, key: str | None, advice: str) -> dict[str, Any]:
    """Return a JSON file's object, which has the key if one is given; otherwise as `read_json`."""
    content = read_json(file, advice)
    if not isinstance(content, dict):
        raise ModelError(f"{file} holds no object; {advice}")
    if key is not None and key not in content:
        raise ModelError(f"{file} has no {key!r}; {advice}")
    return content


def read_header(file: Path) -> Header:
    """Return the header of a safetensors file, after checking that the file is whole.

    The header's length, in 8 bytes (little-endian), stands before it, the tensors behind it, end to
    end (https://huggingface.co/docs/safetensors).

    Raises:
        ModelError: the header is damaged, or does not fit the file.
    """
    size = file.stat().st_size
    try:
        with open_to_read(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= min(size - 8, _LARGEST_HEADER):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            content = stream.read(length)
        tensors = json.loads(content.decode("utf-8"), object_pairs_hook=reject_duplicate_keys)
        if not isinstance(tensors, dict):
            raise ValueError("the header is no object")
        tensors.pop("__metadata__", None)
        places = sorted(_place(name, tensor) for name, tensor in tensors.items())
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}); fetch it again") from None
    except RecursionError:
        raise ModelError(f"{file}: its header is nested too deeply; fetch it again") from None
    except ValueError as error:
        raise ModelError(f"{file} is not a safetensors file ({error}); fetch it again") from None
    end = 0
    for begin, stop, name in places:
        if begin != end:
            raise ModelError(
                f"{file}: the tensor {quoted(name)} begins at byte {begin}, not {end}, where the "
                f"one before it ends; fetch it again"
            )
        end = stop
    if 8 + length + end != size:
        raise ModelError(f"{file} has {size} bytes, not {8 + length + end}; fetch it again")
    return Header(content, {name: tensor["shape"] for name, tensor in tensors.items()})


def _place(name: str, tensor: Any) -> tuple[int, int, str]:
    """Return where a tensor begins and ends, and its name; raise a ValueError if it is unsound."""
    try:
        bits = _BITS[tensor["dtype"]]
        shape = tensor["shape"]
        (begin, end) = tensor["data_offsets"]
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"the tensor {quoted(name)} is {quoted(tensor)}") from None
    sound = isinstance(shape, list) and len(shape) <= _MOST_AXES
    if not sound or not all(
        type(number) is int and 0 <= number < _LARGEST_SIZE for number in (*shape, begin, end)
    ):
        raise ValueError(f"the tensor {quoted(name)} is {quoted(tensor)}")
    if math.prod(shape) * bits != (end - begin) * 8:
        raise ValueError(
            f"the tensor {quoted(name)} of {quoted(tensor['dtype'])} and shape {quoted(shape)} is "
            f"given {quoted(end - begin)} bytes"
        )
    return begin, end, name
