"""Likeness of two texts by their words: no model, no downloads, the same answer everywhere.

Words are compared without case, accents' spellings and common English endings; pairs of neighbouring words count too,
so that order matters a little. Long words say more than short ones, in every language, so no list of stop words is
needed. Where a script has no spaces, each character is a word, and the pairs are what is compared.
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from typing import Final

TEXT_MAX: Final = 20_000
"""Characters of a text that are compared, from its beginning: some pages. A position is stated before that."""

TEXTS_MAX: Final = 256
"""Texts of which what was worked out is kept: those of two rounds, twice over."""

LONG: Final = 8
"""Letters of a word that count: beyond this a longer word does not say more."""

STEM_MIN: Final = 4
"""Letters that are left of a word when its ending is taken off: `is` and `bed` have no ending."""

ENDINGS: Final = ("ings", "ing", "ied", "ies", "ed", "es", "ly", "s")

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")

Features = dict[str | tuple[str, str], int]


def lexical(one: str, other: str) -> float:
    """How alike two texts are by their words, 0 to 1: the cosine of their weighted words and pairs of words.

    The same words in the same order are 1.0, no word in common is 0.0, and a text without any word is like nothing. Two
    texts that say the same in other words are less alike than they should be: a deliberation that is measured by this
    goes on for longer, never for less long.
    """
    ours, theirs = _features(one[:TEXT_MAX]), _features(other[:TEXT_MAX])
    if not ours or not theirs:
        return 0.0
    if ours == theirs:
        return 1.0
    product = sum(weight * theirs.get(feature, 0) for feature, weight in ours.items())
    return min(1.0, product / sqrt(_square(ours) * _square(theirs)))


def words(text: str) -> list[str]:
    """Its words, normalised."""
    return [_stem(word) for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold())]


@lru_cache(TEXTS_MAX)
def _features(text: str) -> Features:
    """Words weigh twice as much as pairs. Whole numbers: the same in whatever order they are added up."""
    found = words(text)
    features: Features = {word: 2 * times * min(len(word), LONG) for word, times in Counter(found).items()}
    for pair, times in Counter(pairwise(found)).items():
        features[pair] = times * min(len(pair[0]) + len(pair[1]), LONG)
    return features


def _square(features: Features) -> int:
    return sum(weight * weight for weight in features.values())


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= STEM_MIN:
            return word[: -len(ending)]
    return word
