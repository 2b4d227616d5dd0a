"""Files of a model's folder, checked before a library reads them: JSON and safetensors headers.

Whatever a file holds, it is read within limits, or refused in one line that names it.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.errors import ModelError, cause_of
from headsweep.files.plain_files import open_to_read, read_plain

_LONGEST_CAUSE = 120  # characters of what a library says of a file


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
    """Return the header of a safetensors file, which the library finds sound and the file whole.

    The header's length, in 8 bytes (little-endian), stands before it, the tensors behind it, end to
    end (https://huggingface.co/docs/safetensors).

    Raises:
        ModelError: the header is damaged, or does not fit the file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with open_to_read(file) as stream:
            with safe_open(file, framework="np") as opened:
                names = opened.keys()
                shapes = {name: opened.get_slice(name).get_shape() for name in names}
            content = stream.read(int.from_bytes(stream.read(8), "little"))
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}); fetch it again") from None
    except SafetensorError as error:
        cause = cause_of(error, _LONGEST_CAUSE)
        raise ModelError(
            f"{file} is not a whole safetensors file ({cause}); fetch it again"
        ) from None
    return Header(content, shapes)
