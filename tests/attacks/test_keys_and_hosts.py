"""Untrusted metrics files: which server gets which key, and which variables they may read."""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured
from evaltap.evaluator.scoring.judges.endpoint import judge_settings
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import JudgeModel, OtherJudge
from support.builders.cases import make_case
from support.servers.judge_server import Answer, judge_server
from support.servers.quiet_http import Handler, serving

KEY = "sk-of-the-environment-0123456789"
KNOWN = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "hunyuan": ("https://api.hunyuan.cloud.tencent.com/v1", "HUNYUAN_API_KEY"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("EVALTAP_JUDGE_BASE_URL", "EVALTAP_JUDGE_MODEL", "EVALTAP_JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALTAP_JUDGE_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case()) + "\n")
    return tmp_path


def score(model: Mapping[str, Any], *more: str, **criterion: Any) -> int:
    judge = {
        "rubrics": [{"id": "1", "content": {"text": "It answers."}}],
        "judgeModel": {"modelName": "m", **model},
        **criterion,
    }
    metric = {
        "metricName": "llm_rubric_response",
        "threshold": 0.5,
        "criterion": {"llmJudge": judge},
    }
    Path("m.json").write_text(json.dumps([metric]))
    return main(["score", "c.jsonl", "--metrics", "m.json", *more])


def grades(_: object) -> Answer:
    verdict = {"rubricScores": [{"id": "1", "score": 1, "reason": "ok"}]}
    return Answer(json.dumps(verdict))


def settings(model: Mapping[str, Any], environ: Mapping[str, str], kind: Any = JudgeModel) -> Any:
    return judge_settings(kind.model_validate({"modelName": "m", **model}), environ)


def test_the_environments_key_does_not_go_to_a_server_that_only_the_file_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", KEY)
    with judge_server(grades) as server:
        score({"baseURL": server.url})

    assert [headers["authorization"] for headers, _ in server.requests] == ["Bearer none"]
    said = capsys.readouterr().err
    assert f"asks m at {server.url.split('/')[2]}" in said
    assert "without EVALTAP_JUDGE_API_KEY" in said


def test_a_panel_of_the_file_does_not_get_the_key_of_the_environments_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with judge_server(grades) as own, judge_server(grades) as strange:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", own.url)
        monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", KEY)
        score({}, panel=[{"modelName": "n", "baseURL": strange.url}])

    assert {headers["authorization"] for headers, _ in own.requests} == {f"Bearer {KEY}"}
    assert {headers["authorization"] for headers, _ in strange.requests} == {"Bearer none"}


def test_a_server_that_the_environment_names_gets_its_key_whoever_names_it_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", KEY)
    with judge_server(grades) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        assert (
            score({"baseURL": server.url}, panel=[{"modelName": "n", "baseURL": server.url}]) == 0
        )

    assert {headers["authorization"] for headers, _ in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in capsys.readouterr().err


NAMES = ["OPENAI_API_KEY", "GITHUB_TOKEN", "EVALTAP_JUDGE_API_KEY", "EVALTAP_X", "MY_API_KEY"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_no_key_sent_to_a_server_that_only_it_names(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, KEY)
    with judge_server(grades) as server:
        assert score({"baseURL": server.url, "apiKey": f"${{{name}}}"}) == 2

    assert server.requests == []
    said = capsys.readouterr().err
    assert f"would send {name} to {server.url.split('/')[2]}" in said
    assert "--allow-key-for" in said
    assert KEY not in said


@pytest.mark.parametrize("name", NAMES)
def test_a_file_may_name_a_key_for_a_server_that_the_command_line_allows(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, KEY)
    with judge_server(grades) as server:
        host = server.url.split("/")[2]
        model = {"baseURL": server.url, "apiKey": f"${{{name}}}"}
        assert score(model, "--allow-key-for", host) == 0
        assert score(model, "--allow-key-for", "localhost:1") == 2

    assert {headers["authorization"] for headers, _ in server.requests} == {f"Bearer {KEY}"}
    assert f"key: {name}" in capsys.readouterr().err


def test_a_key_of_ones_own_goes_to_the_server_of_the_environment_and_a_providers_does_not() -> None:
    environ = {"EVALTAP_JUDGE_BASE_URL": "http://own/v1", "TEAM_TOKEN": KEY, "OPENAI_API_KEY": KEY}

    assert settings({"apiKey": "$TEAM_TOKEN"}, environ).api_key == KEY
    with pytest.raises(ConfigurationError, match="would send OPENAI_API_KEY to own"):
        settings({"apiKey": "$OPENAI_API_KEY"}, environ)


@pytest.mark.parametrize("provider", KNOWN)
def test_a_file_may_name_a_providers_key_for_that_provider_only(provider: str) -> None:
    url, variable = KNOWN[provider]
    environ = {name: KEY for _, name in KNOWN.values()}

    assert settings({"baseURL": url, "apiKey": f"${variable}"}, environ).api_key == KEY
    for other, _ in KNOWN.values():
        if other != url:
            with pytest.raises(ConfigurationError, match=variable):
                settings({"baseURL": other, "apiKey": f"${variable}"}, environ)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["discovered", "named", "on the command line"])
def test_a_metrics_file_that_a_discovered_settings_file_names_gets_no_variable(
    folder: Path, name: str, how: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    Path("evaltap.toml").write_text('metrics = "m.json"\n')
    monkeypatch.setenv(name, KEY)
    if how == "named":
        monkeypatch.setenv("EVALTAP_CONFIG", "evaltap.toml")
    with judge_server(grades) as server:
        score({"baseURL": server.url, "apiKey": f"${{{name}}}"})
        arguments = ["--metrics", "m.json"] if how == "on the command line" else []
        capsys.readouterr()
        assert main(["score", "c.jsonl", *arguments]) == 2

    assert server.requests == []
    said = capsys.readouterr().err
    assert ("nobody named this metrics file" in said) == (how == "discovered")


def test_a_discovered_metrics_file_that_names_its_providers_key_gets_it_from_the_environment() -> (
    None
):
    environ = {"_EVALTAP_DISCOVERED": "EVALTAP_LOG EVALTAP_METRICS", "OPENAI_API_KEY": KEY}

    assert settings({"apiKey": "$OPENAI_API_KEY"}, environ).api_key == KEY
    with pytest.raises(ConfigurationError, match="pass --metrics"):
        settings({"apiKey": "$TEAM_TOKEN"}, environ | {"TEAM_TOKEN": KEY})


SECRETS = ["AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "HOME", "EVALTAP_KAFKA_SASL_PASSWORD",
           "EVALTAP_REDACTION_KEY", "EVALTAP_COLLECT_TOKEN"]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("form", ["${%s}", "$%s", "Bearer-${%s}"])
def test_no_other_variable_is_read_for_a_key(
    folder: Path, name: str, form: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(name, KEY)
    with judge_server(grades) as server:
        assert score({"baseURL": server.url, "apiKey": form % name}) == 2

    assert server.requests == []
    said = capsys.readouterr().err
    assert "judgeModel.apiKey" in said
    assert name in said
    assert "--allow-variables" in said


@pytest.mark.parametrize("key", ["modelName", "baseURL", "providerName"])
def test_no_variable_is_read_for_what_is_sent_openly_unless_the_file_is_trusted(
    folder: Path, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)
    with judge_server(grades) as server:
        text = f"{server.url}?v=$MY_API_KEY" if key == "baseURL" else "$MY_API_KEY"
        assert score({"baseURL": server.url, key: text}) == 2

    assert server.requests == []
    assert f"judgeModel.{key} contains the variable $MY_API_KEY" in capsys.readouterr().err


def test_what_the_environment_replaces_is_not_looked_at() -> None:
    found = settings({"baseURL": "$WHERE"}, {"EVALTAP_JUDGE_BASE_URL": "http://own/v1"})

    assert found.base_url == "http://own/v1"


@pytest.mark.slow
def test_a_trusted_file_reads_variables_and_nothing_shows_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "tulips-in-the-path-77"
    monkeypatch.setenv("WHERE", secret)
    monkeypatch.setenv("JUDGES_KEY", KEY)
    leaks = f"{KEY} {base64.b64encode(KEY.encode()).decode()} {secret}"
    with judge_server(lambda _: Answer(leaks, status=403)) as server:
        score(
            {"baseURL": f"{server.url}?team=${{WHERE}}", "apiKey": "${JUDGES_KEY}"},
            "--allow-variables", "--db", "x.duckdb", "--result", "out", "--report", "r.html",
        )  # fmt: skip
        monkeypatch.setenv("EVALTAP_JUDGE_RETRIES", "0")
        score(
            {"baseURL": "http://127.0.0.1:1/${WHERE}/v1"}, "--allow-variables", "--db", "x.duckdb"
        )
        score({"baseURL": "${WHERE}"}, "--allow-variables", "--db", "x.duckdb")

    said = capsys.readouterr()
    texts = [said.out + said.err]
    texts += [p.read_bytes().decode("latin-1") for p in folder.rglob("*") if p.is_file()]
    for text in texts:
        for hidden in (KEY, base64.b64encode(KEY.encode()).decode().rstrip("="), secret):
            assert hidden not in text


@pytest.mark.parametrize("provider", [*KNOWN, ""])
def test_a_providers_own_key_goes_to_its_known_address_and_nowhere_else(provider: str) -> None:
    url, variable = KNOWN[provider or "openai"]
    environ = {variable: KEY}

    found = settings({"providerName": provider}, environ)
    assert (found.base_url, found.api_key) == (url, KEY)
    assert settings({"providerName": provider, "baseURL": url + "/"}, environ).api_key == KEY
    others = [("https", "http"), ("https://", "https://x."), ("https://", "https://api@evil/")]
    for strange in ("http://localhost:8000/v1", *(url.replace(*one) for one in others)):
        assert settings({"providerName": provider, "baseURL": strange}, environ).api_key == ""
        named = environ | {"EVALTAP_JUDGE_BASE_URL": strange}
        assert settings({"providerName": provider}, named).api_key == ""


def test_a_provider_without_its_key_is_not_configured() -> None:
    with pytest.raises(JudgeNotConfigured, match="ANTHROPIC_API_KEY"):
        settings({"providerName": "anthropic"}, {"OPENAI_API_KEY": KEY})


def test_openais_variables_name_a_server_and_its_key() -> None:
    environ = {"OPENAI_BASE_URL": "http://gateway/v1", "OPENAI_API_KEY": KEY}

    found = settings({}, environ)

    assert (found.base_url, found.api_key) == ("http://gateway/v1", KEY)
    assert settings({"baseURL": "http://gateway/v2"}, environ).api_key == KEY
    assert settings({"baseURL": "http://strange/v1"}, environ).api_key == ""


def test_a_key_for_ones_own_server_does_not_go_to_a_provider_that_the_file_names() -> None:
    environ = {"EVALTAP_JUDGE_BASE_URL": "http://own/v1", "EVALTAP_JUDGE_API_KEY": KEY}

    assert settings({"baseURL": KNOWN["openai"][0]}, environ, OtherJudge).api_key == ""


def test_settings_show_neither_key_nor_address() -> None:
    found = settings({"baseURL": "http://user:pass@host/secret?key=1", "apiKey": KEY}, {})

    assert found.where == "m at host"
    assert not any(word in repr(found) for word in (KEY, "pass", "secret", "key=1"))


def test_a_variable_that_a_file_may_not_read_is_a_mistake_in_the_file() -> None:
    with pytest.raises(ConfigurationError, match="--allow-variables"):
        settings({"apiKey": "$HOME"}, {"HOME": "/root"})


# -- redirects, embeddings -------------------------------------------------------------------------


@contextmanager
def redirecting(target: str) -> Iterator[str]:
    """Serve a redirect to another server, whatever is asked."""

    class Redirecting(Handler):
        def do_POST(self) -> None:
            self.body()
            self.reply(307, Location=target + self.path.removeprefix("/v1"))

    with serving(Redirecting) as url:
        yield f"{url}/v1"


def test_neither_key_nor_conversation_follows_a_redirect_of_the_judge(folder: Path) -> None:
    with judge_server(grades) as other, redirecting(other.url) as url:
        assert score({"baseURL": url, "apiKey": "k"}) == 3

    assert other.requests == []


def embeddings(url: str) -> int:
    part = {"model": {"modelName": "e", "baseURL": url}}
    metric = {
        "metricName": "embedding_similarity",
        "threshold": 0.5,
        "criterion": {"embedding": part},
    }
    Path("m.json").write_text(json.dumps([metric]))
    case = make_case()
    case["conversation"] = case["actualConversation"]
    Path("c.jsonl").write_text(json.dumps(case) + "\n")
    return main(["score", "c.jsonl", "--metrics", "m.json"])


@contextmanager
def listening() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve an error to every request and keep its headers."""
    seen: list[dict[str, str]] = []

    class Listening(Handler):
        def do_POST(self) -> None:
            self.body()
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.reply(400)

    with serving(Listening) as url:
        yield f"{url}/v1", seen


def test_the_key_of_the_embeddings_does_not_go_to_a_server_that_only_the_file_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVALTAP_EMBEDDINGS_API_KEY", KEY)
    with listening() as (url, seen):
        embeddings(url)
        assert [headers["authorization"] for headers in seen] == ["Bearer none"]
        assert f"asks e at {url.split('/')[2]}" in capsys.readouterr().err

        monkeypatch.setenv("EVALTAP_EMBEDDINGS_BASE_URL", url)
        embeddings(url)
        assert seen[-1]["authorization"] == f"Bearer {KEY}"


def test_no_text_follows_a_redirect_of_the_embeddings(folder: Path) -> None:
    with listening() as (other, seen), redirecting(other) as url:
        embeddings(url)

    assert seen == []
