"""What every section of the settings is made of: its base, and the kinds of values that it may hold."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from flyball.config.money import exact

SECONDS_MAX: Final = 10 * 365 * 24 * 3600.0
"""Ten years: a wait beyond it is a hold, and should be called one."""
SECONDS_MIN: Final = 0.000_001
"""A microsecond, the smallest span there is: less would be rounded to nothing, and nothing often means "off"."""
COUNT_MAX: Final = 1_000_000
"""A million of anything is no limit any more."""
KEPT_MAX: Final = 1_000
"""Where each one is kept in a state: more would make every write of that state long."""
FACTOR_MAX: Final = 100.0
"""Growth of a delay. Its 64th power is still a number."""

Count = Annotated[int, Field(ge=1, le=COUNT_MAX)]
CountFromZero = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Kept = Annotated[int, Field(ge=1, le=KEPT_MAX)]
Seconds = Annotated[float, Field(ge=SECONDS_MIN, le=SECONDS_MAX)]
Hours = Annotated[float, Field(ge=SECONDS_MIN, le=SECONDS_MAX / 3600)]
Days = Annotated[float, Field(ge=SECONDS_MIN, le=SECONDS_MAX / 86400)]
Factor = Annotated[float, Field(ge=1, le=FACTOR_MAX)]
Label = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
        json_schema_extra={"$comment": "a name of letters, digits and _ . -"},
    ),
]
Money = Annotated[
    Decimal,
    BeforeValidator(exact),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1_000_000_000},
                {"type": "string", "pattern": r"^\d{1,10}(\.\d{1,6})?$"},
            ],
            "$comment": "an amount such as 0.50, exact to a millionth",
        }
    ),
]


CONTRADICTION: Final = "contradiction"
"""The kind of error where a value is fine by itself and wrong beside another one."""


class Section(BaseModel):
    """Base of every section: unknown keys are errors, text is not taken for a number, and nothing changes later."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Fault(NamedTuple):
    """One contradiction: the path of keys to the value to point at, what is wrong, where in its text (from 1; 0: all
    of it), and whether to point at its key instead."""

    path: tuple[str | int, ...]
    text: str
    column: int = 0
    at_key: bool = False


def contradiction(key: str | tuple[str | int, ...], text: str) -> PydanticCustomError:
    """Two values that contradict each other; `key`, which may be a path of keys, is the one to point at."""
    return contradictory([Fault((key,) if isinstance(key, str) else key, text)])


def contradictory(faults: Sequence[Fault]) -> PydanticCustomError:
    """Several of them at once."""
    return PydanticCustomError(CONTRADICTION, "{text}", {"text": faults[0].text, "faults": tuple(faults)})
