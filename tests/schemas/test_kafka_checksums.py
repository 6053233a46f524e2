"""Checksums of Kafka's records: fast without the package that kafka-python would use."""

import pytest

from attacks.programs import attack


@pytest.mark.slow
def test_checksums_are_those_of_google_crc32c_where_crc32c_is_not_installed() -> None:
    pytest.importorskip("google_crc32c")

    attack("""
import sys
sys.modules["crc32c"] = None
from evaltap.schemas.log.kafka_settings import settings_blamed
from kafka.record import util
assert util.crc32c_c is None
from kafka.record import default_records
slow = util.crc32c_py
assert default_records.calc_crc32c.__defaults__ == (slow,)
with settings_blamed():
    pass
assert default_records.calc_crc32c.__defaults__ != (slow,)
for data in (b"", b"123456789", bytes(range(256)) * 50):
    assert util.calc_crc32c(memoryview(data)) == slow(data)
assert util.calc_crc32c(memoryview(b"123456789")) == 0xE3069283
""")
