"""Sentences of English text, by punctuation and a short list of abbreviations.

The rules are those of NLTK's Punkt without its trained corpus, which would have to be downloaded;
the abbreviations stand in for the training.
"""

import re
from functools import lru_cache
from typing import Any

# Written without the final full stop, lower-cased.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """
        a.m adm al apr aug ave bros capt cf cmdr co col corp dec dept dr e.g est etc feb fig ft gen
        gov hon i.e inc jan jr lt ltd m.d maj messrs mr mrs ms mt nov oct p.m ph.d prof rep rev sen
        sep sept sgt sr st u.k u.n u.s vs
        """,
    )
)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of `text` without the white space between them."""
    sentences: list[str] = _splitter().tokenize(text)
    return [sentence for sentence in sentences if sentence]


@lru_cache(maxsize=1)
def _splitter() -> Any:  # nltk has no types
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types = set(_ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters)
