"""The word lists of the package glin-profanity, an optional dependency."""

from collections.abc import Sequence
from typing import Any, cast, get_args

from evaltap.evaluator.scoring.contract.errors import MetricError


def listed_words(
    languages: Sequence[str], allowed: Sequence[str]
) -> object:  # the package's Filter
    """Return a filter over the lists of some languages; raise MetricError if they are unavailable."""
    try:
        from glin_profanity import Filter, FilterConfig, Language
    except ImportError as error:
        raise MetricError(
            "toxicWords.languages needs the package glin-profanity; install evaltap[toxicity], "
            "or give your own list in values"
        ) from error
    known = get_args(Language)
    unknown = [language for language in languages if language not in known]
    if unknown:
        raise MetricError(
            f"toxicWords.languages has '{unknown[0]}'; expected some of {', '.join(sorted(known))}"
        )
    config: FilterConfig = {"languages": cast(Any, [*languages]), "ignore_words": [*allowed]}
    return Filter(config)


def find_listed(words: Any, text: str) -> set[str]:  # the package's Filter
    """Return the listed words in a text, in lower case."""
    found = words.check_profanity(text)
    return (
        {word.lower() for word in found["profane_words"]} if found["contains_profanity"] else set()
    )
