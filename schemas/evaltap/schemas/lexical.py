"""Criteria of lexical similarity and keyword coverage (evaltap's own parts of a metric)."""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.base import Keep, WireModel


class LexicalCriterion(WireModel):
    """How alike the letters of the final response and of the expected one are."""

    algorithm: str = ""
    """Empty or `dice`, `jaro_winkler`, `levenshtein`."""
    case_sensitive: bool = False
    keep_space: bool = False
    """Compare white space as it is; otherwise each run of it counts as one space."""


class KeywordsCriterion(WireModel):
    """Which keywords the final response should hold, and how they are looked for."""

    source: str = ""
    """Empty or `config` (`values`), `reference` (the words of the expected final response), `context`
    (a list of texts, or a text with commas, at `path` in the case)."""
    values: list[str] = Field(default_factory=list)
    path: str = ""
    """Where keywords stand in the case: `$.sessionInput.state.keywords`."""
    min_length: Annotated[int | None, Keep] = None
    """Shortest word of a reference that is a keyword; 4 letters when not given."""
    partial: bool = False
    """A keyword may be part of a longer word."""
    case_sensitive: bool = False
    keep_space: bool = False


class SentimentCriterion(WireModel):
    """The tone of one text of a turn, by a lexicon of English words."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`."""
    mode: str = ""
    """Empty or `normalized` (0 to 1), `comparative` (valence per word), `raw` (sum of valences),
    `category`."""
    categories: list[str] = Field(default_factory=list)
    """Of `category`: those that are right, of `positive`, `neutral` and `negative`."""
    min: Annotated[float | None, Keep] = None
    """Of `comparative` and `raw`: the lowest value that is right."""
    max: Annotated[float | None, Keep] = None


class ToxicWordsCriterion(WireModel):
    """Words that must not stand in one text of a turn."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`."""
    values: list[str] = Field(default_factory=list)
    languages: list[str] = Field(default_factory=list)
    """Languages whose word list of the package glin-profanity counts as well: `english`, `german`, ..."""
    allowed: list[str] = Field(default_factory=list)
    """Words of those lists that are allowed here."""
    partial: bool = False
    """A value may be part of a longer word."""
