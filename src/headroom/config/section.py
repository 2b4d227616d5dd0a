"""What every section of a config is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$", max_length=64)
]
Count = Annotated[int, Field(ge=1, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Section(BaseModel):
    """A part of the config: no unknown keys, no changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
