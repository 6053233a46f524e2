"""nltk's VADER with the lexicon that is stored next to this module; importing nltk takes a second."""

from importlib.resources import files

from nltk.sentiment.vader import SentimentIntensityAnalyzer, VaderConstants


class Analyzer(SentimentIntensityAnalyzer):  # type: ignore[misc]  # nltk has no types
    """Also returns the sum of the valences and the number of words."""

    def __init__(self) -> None:
        # The base class would search for an nltk download; these attributes are all that it needs.
        lexicon = files("evaltap.evaluator.scoring.criteria.content") / "lexicon/vader_lexicon.tsv"
        self.lexicon_file = lexicon.read_text("utf-8").strip("\n")
        self.lexicon = self.make_lex_dict()
        self.constants = VaderConstants()

    def score_valence(self, sentiments: list[float], text: str) -> dict[str, float]:
        """Return the scores of the words of a text."""
        found: dict[str, float] = super().score_valence(sentiments, text)
        return found | {"raw": float(sum(sentiments)), "words": len(sentiments)}
