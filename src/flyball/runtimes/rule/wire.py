"""What a run of a rule and its worker say to each other: one line of JSON each way, one question at a time."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from flyball.runtimes.rule.failed import ActionFailed

ASKED_MAX: Final = 1024 * 1024
"""Bytes of one question: several times what a trigger may say."""
RESULT_MAX: Final = 256 * 1024
"""Bytes of a result, as JSON. It is for templates of later actions; what is larger belongs into a file."""
ANSWER_MAX: Final = 1024 * 1024
"""Bytes of one answer: a result, or an error with a stack, of which each is cut."""

DETAIL_MAX: Final = 16_384
FRAMES_MAX: Final = 3
"""Characters of a stack, and the frames that name a failure: as an exit and a fingerprint have them. What says so is
not imported, because a worker has to be there soon."""


class Asked(msgspec.Struct, frozen=True):
    """Do this."""

    verb: str
    what: dict[str, Any]
    until: float
    """When the worker is ended, if it has not answered: on the clock that all processes of a machine share."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done, with that result."""

    result: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="failed"):
    """It failed: an ActionFailed, field by field."""

    error: str
    text: str
    target: str = ""
    code: int | None = None
    signal: int | None = None
    status: int | None = None
    errno: int | None = None
    detail: str = ""
    final: bool = False
    starved: bool = False

    @classmethod
    def of(cls, failed: ActionFailed) -> "Failed":
        """As it is said."""
        return cls(
            error=failed.error,
            text=str(failed),
            target=failed.target,
            code=failed.code,
            signal=failed.signal,
            status=failed.status,
            errno=failed.errno,
            detail=failed.detail,
            final=failed.final,
            starved=failed.starved,
        )

    @property
    def meant(self) -> ActionFailed:
        """As it is raised."""
        return ActionFailed(
            self.error,
            self.text,
            target=self.target,
            code=self.code,
            signal=self.signal,
            status=self.status,
            errno=self.errno,
            detail=self.detail,
            final=self.final,
            starved=self.starved,
        )


Answer = Done | Failed
decode: Final[Callable[[bytes], Answer]] = msgspec.json.Decoder[Answer](Answer).decode
