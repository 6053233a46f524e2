"""Settings of a recorder, and spans of a tracer provider."""

import _thread
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.recorder import Recorder, RecorderConfig
from evaltap.recorder.recorder import Recorder as RecorderClass
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.wire.record import DecodedCase, decode_record
from support.builders.recorded_turns import record_turn


class TestConfiguration:
    """Argument, then environment, then default."""

    def test_an_argument_wins_over_the_environment_and_that_over_the_default(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EVALTAP_SAMPLE_RATE", "0.25")
        monkeypatch.setenv("EVALTAP_LOG", "from-environment.db")

        config = RecorderConfig(sample_rate=0.5)

        assert (config.sample_rate, config.log) == (0.5, "from-environment.db")
        assert RecorderConfig().sample_rate == 0.25
        assert config.flush_interval_seconds == 0.05

    @pytest.mark.parametrize(
        ("variable", "text"),
        [
            ("QUEUE_MAX_EVENTS", "-1"),
            ("REDACTION", "perhaps"),
            ("CLOSE_TIMEOUT_SECONDS", ""),
        ],
    )
    def test_a_bad_variable_is_logged_and_the_default_holds(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        variable: str,
        text: str,
    ) -> None:
        monkeypatch.setenv(f"EVALTAP_{variable}", text)

        config = RecorderConfig()

        name = variable.lower()
        default = RecorderConfig.__dataclass_fields__[name].metadata["default"]
        # What says how much is recorded falls to the private side.
        assert getattr(config, name) == (0 if variable == "SAMPLE_RATE" else default)
        assert f"EVALTAP_{variable}" in caplog.text

    @pytest.mark.parametrize(
        "settings",
        [
            {"sample_rate": 1.5},
            {"sample_rate": "0.5"},
            {"redaction": "yes"},
            {"queue_max_events": 0},
            {"queue_max_events": 10.5},
            {"app_name": 7},
            {"redaction_key": "short"},
            {"nonsense": 1},
            {"log": "kafka://broker:9092/"},
            {"log": "kafka://broker:9092/one,two"},
            {"log": "no/such/directory/log.db"},
            {"log": "."},
            {"log": object()},  # such as a recorder, of which a plugin takes none as its log
            {},
        ],
    )
    def test_a_mistake_of_the_programmer_is_raised_at_the_start(
        self, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("EVALTAP_LOG", raising=False)

        with pytest.raises(ConfigurationError):
            Recorder(**settings)

    def test_a_secret_is_never_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = RecorderConfig(redaction_key="a-long-secret-key-canary")

        assert "canary" not in repr(config)
        with pytest.raises(ConfigurationError) as caught:
            RecorderConfig(redaction_key="canary")
        assert "canary" not in str(caught.value)

    def test_the_kill_switch_needs_no_log_and_starts_nothing(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("EVALTAP_DISABLED", "1")
        recorder = Recorder(tmp_path / "log.db")
        before = _thread._count()

        record_turn(recorder)

        assert _thread._count() == before
        assert list(tmp_path.iterdir()) == []
        assert recorder.close()
        counters = recorder.counters()
        assert (counters.recorded, counters.dropped) == (0, {})
        assert RecorderClass().close()


def test_spans_of_a_tracer_provider_become_turns_on_the_log(tmp_path: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    from evaltap.recorder import CaseSpanProcessor

    provider = TracerProvider()
    processor = CaseSpanProcessor(str(tmp_path / "log.db"))
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("test")

    for n in range(3):
        run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": f"s-{n}"}
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get_order",
            "gen_ai.tool.call.arguments": '{"id": "A-100"}',
        }
        with (
            tracer.start_as_current_span("invoke_agent a", attributes=run),
            tracer.start_as_current_span("execute_tool get_order", attributes=tool),
        ):
            pass

    assert provider.force_flush(20_000)
    source = LocalLogSource(tmp_path / "log.db")
    decoded = [decode_record(item.record) for item in source.poll(10, 0).records]
    source.close()
    provider.shutdown()
    cases = [item.case for item in decoded if isinstance(item, DecodedCase)]
    assert [case["evalId"] for case in cases] == ["s-0", "s-1", "s-2"]
    for case in cases:
        (tool_call,) = case["actualConversation"][0]["tools"]
        assert (tool_call["name"], tool_call["arguments"]) == ("get_order", {"id": "A-100"})
