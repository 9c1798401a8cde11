"""Likeness of two texts by what they mean: a small local model, read from the files of an installed package.

The model is a table of 32,000 word pieces (16 MB, in the wheel of WordLlama); a text is the mean of its pieces. Nothing
is downloaded and nothing leaves the machine. The package itself is not imported: it would set up the program's logging,
and its own loader looks for the tokenizer on the network.
"""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flyball.errors import FlyballError
from flyball.integrations.deliberation.words import TEXT_MAX, TEXTS_MAX
from flyball.integrations.missing import missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGE: Final = "wordllama"
TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
TENSOR: Final = "embedding.weight"


class Embedding:
    """A measure: `Embedding()(one, other)` is 0 to 1. To make one reads the model, a tenth of a second; to compare two
    texts takes about a millisecond. Any thread may use it."""

    def __init__(self) -> None:
        folder = _folder()
        try:
            from safetensors.numpy import load_file  # noqa: PLC0415 - an extra
            from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
        except ImportError:
            raise missing("embeddings", "embeddings") from None
        if not (folder / TOKENIZER).is_file() or not (folder / WEIGHTS).is_file():
            raise FlyballError(
                f"this version of {PACKAGE} does not carry the model's files",
                remedy="Install another: pip install 'wordllama>=0.4,<0.5'; or compare words: `measure=lexical`.",
            )
        self._tokenizer: Any = Tokenizer.from_file(str(folder / TOKENIZER))
        self._table = load_file(folder / WEIGHTS)[TENSOR]
        self._vector = lru_cache(TEXTS_MAX)(self._embedded)

    def __call__(self, one: str, other: str) -> float:
        """The cosine of the two texts; what points away from each other is 0, as is a text of nothing."""
        ours, theirs = self._vector(one[:TEXT_MAX]), self._vector(other[:TEXT_MAX])
        if ours is None or theirs is None:
            return 0.0
        if one == other:
            return 1.0  # and not a hair less, as the last digits of a product may have it
        return min(1.0, max(0.0, float(ours @ theirs)))

    def _embedded(self, text: str) -> "NDArray[np.float64] | None":
        pieces = self._tokenizer.encode(text, add_special_tokens=False).ids if text.strip() else ()
        if not pieces:
            return None
        mean: NDArray[np.float64] = self._table[pieces].astype("float64").mean(axis=0)
        length = float((mean @ mean) ** 0.5)
        return mean / length if length else None


def installed() -> bool:
    """Whether the extra is there."""
    return all(find_spec(name) is not None for name in (PACKAGE, "tokenizers", "safetensors", "numpy"))


def _folder() -> Path:
    """Where the package is. To find it does not import it."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise missing("embeddings", "embeddings")
    return Path(found.origin).parent
