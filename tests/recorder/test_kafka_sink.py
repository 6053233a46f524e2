"""The Kafka sink's handling of a broker's answers, without a broker."""

import pytest
from kafka import errors
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata
from kafka.structs import TopicPartition

from evaltap.recorder.delivery.sinks.kafka import TopicAnswer
from evaltap.recorder.faults import RecordRefusedError


def answer(error: Exception) -> TopicAnswer:
    batch = FutureProduceResult(TopicPartition("cases", 0))
    one = FutureRecordMetadata(batch, 0, 0, None, 1, 1, 0)
    batch.failure(error)
    return TopicAnswer(one)


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRecordError,
        errors.MessageSizeTooLargeError,
        errors.RecordListTooLargeError,
    ],
)
def test_what_is_said_of_the_record_itself_is_a_refusal(error: type[Exception]) -> None:
    with pytest.raises(RecordRefusedError):
        answer(error("no")).wait(0)


@pytest.mark.parametrize(
    "error",
    [
        errors.TopicAuthorizationFailedError,
        errors.UnknownTopicOrPartitionError,
        errors.NotEnoughReplicasError,
        errors.KafkaTimeoutError,
    ],
)
def test_what_can_be_mended_is_no_refusal(error: type[Exception]) -> None:
    with pytest.raises(error):
        answer(error("not now")).wait(0)
