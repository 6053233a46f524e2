"""Similarity by embeddings: requests, valid and invalid answers, and limits of the method."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer, MetricOutcome, ScriptedEmbedder, Services
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.contract.embedder import (
    Embedder,
    EmbeddingInvalidError,
    EmbeddingsNotConfiguredError,
    EmbeddingsUnavailableError,
)
from evaltap.evaluator.scoring.embeddings import (
    EmbeddingSettings,
    EnvironmentEmbedders,
    OpenAIEmbedder,
    WordLlamaEmbedder,
    cosine,
    embedding_settings,
)
from evaltap.schemas import EvalMetric
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.criteria import EmbeddingModel
from support.builders.cases import make_case, make_turn
from support.servers.quiet_http import Handler, serving

PLACES = {"here": [1.0, 0.0], "near": [0.8, 0.6], "across": [0.0, 2.0], "away": [-1.0, 0.0]}


def score(
    embedder: Embedder | None, *pairs: tuple[str | None, str | None], **model: Any
) -> MetricOutcome:
    metric = EvalMetric.model_validate(
        {
            "metricName": "embedding_similarity",
            "threshold": 0.75,
            "criterion": {"embedding": {"model": model} if model else {}},
        }
    )
    case = make_case(
        turns=[make_turn(answer=one) for one, _ in pairs],
        conversation=[make_turn(answer=other) for _, other in pairs],
    )
    services = Services() if embedder is None else Services(embeddings=lambda _: embedder)
    return CaseScorer([metric], services=services).score(case).metrics[0]


def test_paths_name_the_texts_that_are_compared() -> None:
    metric = EvalMetric.model_validate(
        {
            "metricName": "embedding_similarity",
            "threshold": 0.75,
            "criterion": {
                "embedding": {"target": "$.state.a", "reference": "$.sessionInput.state.b"}
            },
        }
    )
    embedder = ScriptedEmbedder(PLACES.__getitem__)
    case = make_case(turns=[make_turn(state={"a": "near"})], sessionInput={"state": {"b": "here"}})

    score = CaseScorer([metric], services=Services(embeddings=lambda _: embedder)).score(case)

    assert score.metrics[0].score == pytest.approx(0.8)


def test_the_score_is_the_cosine_and_0_where_it_is_negative() -> None:
    embedder = ScriptedEmbedder(PLACES.__getitem__)

    found = score(embedder, ("near", "here"), ("across", "here"), ("away", "here"))

    assert [turn.score for turn in found.turns] == [pytest.approx(0.8), 0, 0]
    assert [turn.value for turn in found.turns] == [pytest.approx(0.8), 0, -1]
    assert found.turns[0].status is Status.PASSED


def test_all_texts_of_a_case_go_out_in_one_request_and_each_once() -> None:
    embedder = ScriptedEmbedder(PLACES.__getitem__)

    score(embedder, ("near", "here"), ("here", "here"))

    assert embedder.calls == [["near", "here"]]


def test_without_a_service_nothing_is_evaluated() -> None:
    found = score(None, ("near", "here"))

    assert (found.status, found.score) == (Status.NOT_EVALUATED, None)
    assert found.reason == "no embeddings service was given to the evaluator"


def test_a_text_that_is_not_there_or_has_no_direction_has_no_score() -> None:
    embedder = ScriptedEmbedder(lambda text: [0.0, 0.0] if text == "" else PLACES[text])

    found = score(embedder, (None, "here"), ("here", None), ("", "here"), ("here", "here"))

    assert [turn.status for turn in found.turns] == ["not_evaluated"] * 3 + ["passed"]
    assert "expected finalResponse is absent" in found.turns[1].reason
    assert "has no vector" in found.turns[2].reason


@pytest.mark.parametrize(
    "vectors",
    [[], [[1.0]], [[1.0, 0.0], [1.0]], [[], []], [[float("nan")], [1.0]], [["1"], [1.0]], "ab", [1, 2]],
)  # fmt: skip
def test_vectors_that_are_none_are_an_error_and_no_score(vectors: Any) -> None:
    class Broken:
        def embed(self, texts: Sequence[str]) -> Any:
            return vectors

    found = score(Broken(), ("near", "here"))

    assert (found.status, found.score) == (Status.ERROR, None)
    assert found.error_type == "EmbeddingInvalidError"


def test_the_cosine_stays_within_its_bounds() -> None:
    vector = [0.1] * 7

    assert cosine(vector, vector) == 1.0
    assert cosine([0.1, 0.3, 0.7], [0.1, 0.3, 0.7]) == 1.0
    assert cosine([1e200, 1e200], [1e200, -1e200]) == 0.0
    assert cosine(vector, [0.0] * 7) is None


# -- which model -----------------------------------------------------------------------------------


def test_the_environment_goes_before_the_metric() -> None:
    own = EmbeddingModel(model_name="a", base_url="http://one/v1")
    environ = {"EVALTAP_EMBEDDINGS_MODEL": "b", "EVALTAP_EMBEDDINGS_API_KEY": "k-1"}

    found = embedding_settings(own, environ)

    assert (found.model, found.base_url, found.api_key) == ("b", "http://one/v1", "")
    environ["EVALTAP_EMBEDDINGS_BASE_URL"] = "http://one:80/v1"
    found = embedding_settings(own, environ)
    assert (found.base_url, found.api_key) == ("http://one:80/v1", "k-1")
    assert "k-1" not in repr(found)


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({}, EmbeddingsNotConfiguredError),
        ({"EVALTAP_EMBEDDINGS_MODEL": "m"}, EmbeddingsNotConfiguredError),
        ({"EVALTAP_EMBEDDINGS_PROVIDER": "abacus"}, ConfigurationError),
        (
            {
                "EVALTAP_EMBEDDINGS_MODEL": "m",
                "EVALTAP_EMBEDDINGS_API_KEY": "k",
                "EVALTAP_EMBEDDINGS_TIMEOUT": "soon",
            },
            ConfigurationError,
        ),
    ],
)
def test_settings_that_lead_nowhere_are_refused(
    environ: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        embedding_settings(None, environ)


def test_the_environment_names_a_model_where_it_is_not_the_metrics() -> None:
    embedders = EnvironmentEmbedders(
        {"EVALTAP_EMBEDDINGS_MODEL": "e", "EVALTAP_EMBEDDINGS_API_KEY": "k"}
    )

    assert embedders.named(None) == embedders.named(EmbeddingModel(model_name="f")) == "openai e"
    assert embedders.named(EmbeddingModel(model_name="e")) == ""
    with pytest.raises(EmbeddingsNotConfiguredError):
        EnvironmentEmbedders({}).named(None)


def test_one_embedder_is_made_for_one_setting() -> None:
    embedders = EnvironmentEmbedders({"EVALTAP_EMBEDDINGS_PROVIDER": "wordllama"})

    assert embedders(None) is embedders(EmbeddingModel())


# -- an endpoint -----------------------------------------------------------------------------------


@contextmanager
def endpoint(status: int, answer: Any) -> Iterator[tuple[OpenAIEmbedder, list[Any]]]:
    """Serve one answer; yield an embedder that asks there, and what it asked."""
    asked: list[Any] = []

    class Endpoint(Handler):
        def do_POST(self) -> None:
            asked.append((self.path, self.headers["Authorization"], json.loads(self.body())))
            self.reply(status, json.dumps(answer).encode(), Content_Type="application/json")

    with serving(Endpoint) as url:
        embedder = OpenAIEmbedder(EmbeddingSettings("openai", "m", f"{url}/v1", "k-secret"))
        try:
            yield embedder, asked
        finally:
            embedder.close()


def rows(*vectors: tuple[int, Any]) -> dict[str, Any]:
    data = [{"object": "embedding", "index": place, "embedding": one} for place, one in vectors]
    return {"object": "list", "model": "m", "data": data, "usage": {}}


def test_an_endpoint_is_asked_in_openais_form_and_its_order_is_restored() -> None:
    with endpoint(200, rows((1, [0.0, 1.0]), (0, [1.0, 0.0]))) as (embedder, asked):
        assert embedder.embed(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]

    path, key, body = asked[0]
    assert (path, key) == ("/v1/embeddings", "Bearer k-secret")
    assert (body["model"], body["input"]) == ("m", ["a", "b"])


@pytest.mark.parametrize(
    "answer",
    [{}, {"data": None}, rows((0, [1.0])), rows((0, [1.0]), (0, [1.0])), rows((0, "x"), (1, [1.0]))],
)  # fmt: skip
def test_an_endpoint_that_answers_garbage_gives_no_vectors(answer: Any) -> None:
    with endpoint(200, answer) as (embedder, _), pytest.raises(EmbeddingInvalidError):
        embedder.embed(["a", "b"])


def test_an_endpoint_that_refuses_is_unavailable_and_the_key_is_not_told() -> None:
    answer = {"error": {"message": "wrong key k-secret"}}
    with (
        endpoint(401, answer) as (embedder, _),
        pytest.raises(EmbeddingsUnavailableError) as caught,
    ):
        embedder.embed(["a"])

    assert "k-secret" not in str(caught.value)


def test_a_key_that_is_no_header_is_refused_and_not_told() -> None:
    settings = EmbeddingSettings("openai", "m", "http://127.0.0.1:1/v1", "k-secret\nX: y")

    with pytest.raises(ConfigurationError) as caught:
        OpenAIEmbedder(settings)

    assert "k-secret" not in str(caught.value)


# -- weights on this machine -----------------------------------------------------------------------


def test_weights_of_this_machine_miss_a_negation_which_the_page_warns_of() -> None:
    embedder = WordLlamaEmbedder()

    def near(one: str, other: str) -> float:
        return score(embedder, (one, other), providerName="wordllama").score or 0.0

    opposite = near("the refund was issued", "the refund was denied")
    paraphrase = near("the refund was issued", "we paid you back the money")
    unrelated = near("the refund was issued", "the train leaves at noon")
    assert opposite > 0.7 > 0.4 > paraphrase > unrelated
