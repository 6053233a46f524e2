"""The sink for the configured log."""

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.sinks.base import Sink
from evaltap.recorder.delivery.sinks.local_log import LocalLogSink
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log.location import CASE, KafkaLocation, parse_log_location


def log_sink(config: RecorderConfig) -> Sink:
    """Return the sink for the configured log; raises ConfigurationError when it cannot be written to."""
    if config.log is None:
        raise ConfigurationError(
            "no log is configured: pass Recorder('log.db'), or set EVALTAP_LOG, or EVALTAP_DISABLED=1"
        )
    location = parse_log_location(config.log)
    if isinstance(location, KafkaLocation):
        if location.format != CASE:
            raise ConfigurationError(
                f"log {config.log!r}: topics of format {location.format} are read-only, for "
                "`evaltap consume`; name a topic of turns to write to"
            )
        if len(location.topics) > 1:
            raise ConfigurationError(
                f"log {config.log!r}: names {len(location.topics)} topics, but only readers accept "
                "several; name the one to write to"
            )
        from evaltap.recorder.delivery.sinks.kafka import KafkaSink

        return KafkaSink(location, max_bytes=config.log_max_bytes)
    path = location
    try:
        usable = path.parent.is_dir() and not path.is_dir()
    except OSError as error:
        raise ConfigurationError(
            f"log {config.log!r} cannot be reached ({error}): name a file in a directory that the "
            "agent may write to"
        ) from error
    if not usable:
        raise ConfigurationError(
            f"log {config.log!r} cannot be a file: name a file in a directory that exists"
        )
    return LocalLogSink(path, max_bytes=config.log_max_bytes)
