"""No text keeps the agent's other threads from the interpreter, whatever it repeats."""

import threading
import time
from contextlib import suppress

import pytest

from evaltap.recorder.privacy.redactor import PatternRedactor

SHAPES = ["://", "://a:", ":\\/\\/", "https://", "https://u:p@h/ ", "sk-", "sk-a-", "YCP ", "al-", "ntn_-",
          "EAAE-", "uak_-", "a@", "@", "%41", "1234 ", "0", "A", 'password "', "password: x ", "token=",
          "Bearer ", "eyJ", "-----BEGIN ", "\\u0041", "a: ", '{"a": 1}, ', "x\n"]  # fmt: skip


def held_seconds(redactor: PatternRedactor, text: str) -> float:
    """Return the longest CPU time of a redacting thread between two steps of another one."""
    turn = {"invocationId": "i", "userContent": {"role": "user", "content": text}}
    ended = threading.Event()

    def redact() -> None:
        redactor({"evalId": "e", "actualConversation": [turn]})
        ended.set()

    thread = threading.Thread(target=redact)
    thread.start()
    longest = before = 0.0
    with suppress(OSError):  # it has ended
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        while not ended.is_set():
            now = time.clock_gettime(clock)
            longest, before = max(longest, now - before), now
            time.sleep(0)
    thread.join()
    return longest


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_no_text_of_60_kb_holds_the_interpreter_for_more_than_20_ms(shape: str) -> None:
    redactor = PatternRedactor(b"k" * 32)
    held_seconds(redactor, "for warming up: bob@example.com")
    text = (shape * 60_000)[:60_000]

    # The system sometimes lets the other thread wait: the best of several.
    assert min(held_seconds(redactor, text) for _ in range(5)) < 0.02
