"""What recording costs the agent's thread, compared with what a team would have instead.

One turn: a user message, four tool calls with results, an answer.  Measured on the calling thread, the
contenders in turn within the same run, so that the ratios hold on a noisy machine:

    json line        json.dumps of the turn and a write to an open file: the least one does by hand
    spans            the same turn as nine OpenTelemetry spans that nobody processes
    spans, batch     the same spans through a BatchSpanProcessor that encodes OTLP
    spans, evaltap   the same spans through CaseSpanProcessor
    turn API         the same turn through recorder.turn(...)

CPU is that of the calling thread alone; wall time includes what background threads take from it through
the interpreter lock.  `--pause-ms` is the pause between turns that real agents have.  The last column is
what a processor adds to the spans, by CPU in the middle, in terms of what the batch processor adds.

    python docs/benchmarks/recorder_overhead.py [--turns 200] [--rounds 15] [--pause-ms 2]

With `--redaction`, what share of the process's CPU redaction has in turns of the plain API: of the same
texts each time, and of new ones, whose prose speaks of codes, keys and passwords.  Recorders with and without
redaction take turns.

    python docs/benchmarks/recorder_overhead.py --redaction [--turns 200] [--rounds 15]
"""

import argparse
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from evaltap.recorder import CaseSpanProcessor, Recorder

USER = "hello " * 60
ANSWER = "ok " * 100
ARGUMENTS = {"q": "item 5", "n": 3}
RESULT = {"rows": [{"id": n, "label": "row"} for n in range(20)]}
MESSAGES = json.dumps([{"role": "user", "parts": [{"type": "text", "content": USER}]}])
ANSWERED = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}])
STEPS = 4

Turn = Callable[[int], None]


class Encode(SpanExporter):
    """An exporter that does all its work but the sending."""

    def export(self, spans: Any) -> SpanExportResult:
        """Encode the spans as a request."""
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Have nothing to close."""


def json_line(folder: Path) -> tuple[Turn, Callable[[], object]]:
    """Return the turn of the floor, and how to end it."""
    file = (folder / "turns.jsonl").open("a")

    def turn(number: int) -> None:
        tools = [
            {"id": f"c-{step}", "name": "get_order", "arguments": ARGUMENTS, "result": RESULT}
            for step in range(STEPS)
        ]
        case = {"evalId": f"s-{number}", "user": USER, "tools": tools, "answer": ANSWER}
        file.write(json.dumps(case) + "\n")
        file.flush()

    return turn, file.close


def spans(*processors: SpanProcessor) -> tuple[Turn, Callable[[], object]]:
    """Return the turn as nine spans, and how to shut the provider down."""
    provider = TracerProvider()
    for processor in processors:
        provider.add_span_processor(processor)
    tracer = provider.get_tracer("benchmark")

    def turn(number: int) -> None:
        root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": f"s-{number}"}
        with tracer.start_as_current_span("invoke_agent a", attributes=root) as agent:
            agent.set_attribute("gen_ai.input.messages", MESSAGES)
            for step in range(STEPS):
                chat = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": MESSAGES}
                with tracer.start_as_current_span("chat m", attributes=chat) as span:
                    span.set_attribute("gen_ai.usage.input_tokens", 100)
                tool = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "get_order",
                    "gen_ai.tool.call.id": f"c-{step}",
                    "gen_ai.tool.call.arguments": json.dumps(ARGUMENTS),
                }
                with tracer.start_as_current_span("execute_tool t", attributes=tool) as span:
                    span.set_attribute("gen_ai.tool.call.result", json.dumps(RESULT))
            agent.set_attribute("gen_ai.output.messages", ANSWERED)

    return turn, provider.shutdown


def turn_api(folder: Path) -> tuple[Turn, Callable[[], object]]:
    """Return the turn through the plain API, and how to close the recorder."""
    recorder = Recorder(folder / "turns.db")

    def turn(number: int) -> None:
        with recorder.turn(session_id=f"s-{number}", user=USER) as recorded:
            for step in range(STEPS):
                recorded.model("m", input_tokens=100)
                recorded.tool("get_order", ARGUMENTS, id=f"c-{step}", result=RESULT)
            recorded.respond(ANSWER)

    return turn, lambda: recorder.close(60)


SENTENCES = (
    "The access code of item {n} has not changed since {d} May, so the key stays the same.",
    "Your password was reset {d} days ago; the token limit is {n} tokens.",
    "Please send the address and the name of customer {n} to the {w} team.",
    "Error code {n}: the primary key of table {w} is missing (see {w}.{w}).",
    "Run `{w} --{w} {d}` and compare {w}_{w}={n} with the value of {w}, or write to @{w}.",
    "Die Bestellung {n} wurde am {d}. Mai an die Adresse geliefert; der Code ist gültig.",
    "订单 {n} 已于5月{d}日发货,请确认收货地址和密码是否正确。",
    "The {w} {w} of the {w} is {w} in {n} {w}, see https://{w}.example.com/{w}/{w}?page={d}.",
    *("The {w} {w} the {w}, and {w} {w} {w} with {d} {w}: {w}." for _ in range(4)),
    *("{w} {w} {w} {w} {w} {w} {w} {w} {w}, {w} {w}." for _ in range(8)),
)
"""A third of them has a word that redaction has to look at more closely."""
DOCS = Path(__file__).parents[1]

Content = tuple[str, Any, Any, str]
"""A user message, the arguments and the result of each call, an answer."""


def same_texts(number: int) -> Content:
    """Return the texts of every turn."""
    return USER, [ARGUMENTS] * STEPS, [RESULT] * STEPS, ANSWER


def new_texts() -> Callable[[int], Content]:
    """Return a function that returns texts in no other turn, of the words of this documentation."""
    pages = "".join(page.read_text() for page in sorted(DOCS.glob("*/*.md")))
    vocabulary = sorted(set(re.findall("[a-z]{3,12}", pages)))
    draw = random.Random(1)

    def fill(field: re.Match[str]) -> str:
        if field[1] == "w":
            return draw.choice(vocabulary)
        return str(draw.randrange(1, 31 if field[1] == "d" else 99_999))

    def prose(sentences: int, of: tuple[str, ...] = SENTENCES) -> str:
        return re.sub(r"{(\w)}", fill, " ".join(draw.choice(of) for _ in range(sentences)))

    def texts(number: int) -> Content:
        arguments = [{"q": prose(1, ("item {n} {w} {w}",)), "n": number} for _ in range(STEPS)]
        results = [
            {"rows": [{"id": n, "label": prose(1, ("{w} {w} {w} {w}",))} for n in range(20)]}
            for _ in range(STEPS)
        ]
        return prose(3), arguments, results, prose(6)

    return texts


def recorded(folder: Path, contents: list[Content], *, redaction: bool) -> float:
    """Return the CPU time of the process for recording turns."""
    recorder = Recorder(folder / "share.db", redaction=redaction)
    began = time.process_time()
    for number, (user, arguments, results, answer) in enumerate(contents):
        with recorder.turn(session_id=f"s-{number}", user=user) as turn:
            for step in range(STEPS):
                turn.model("m", input_tokens=100)
                turn.tool("get_order", arguments[step], id=f"c-{step}", result=results[step])
            turn.respond(answer)
        if number % 20 == 19:
            recorder.flush(60)
    recorder.flush(60)
    took = time.process_time() - began
    recorder.close(60)
    return took


def print_shares(turns: int, rounds: int) -> None:
    """Print the shares of redaction."""
    for name, texts in (("same texts", same_texts), ("new texts", new_texts())):
        with_, without = [], []
        for number in range(rounds + 1):
            contents = [texts(one) for one in range(turns)]
            for redaction in (True, False) if number % 2 else (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    took = recorded(Path(folder), contents, redaction=redaction)
                (with_ if redaction else without).append(took / turns * 1e3)
        shares = [1 - off / on for on, off in list(zip(with_, without, strict=True))[1:]]
        print(
            f"{name}: {min(with_):.2f} ms a turn, {min(without):.2f} ms without redaction;", end=" "
        )
        print(f"share of redaction {statistics.median(shares):.0%}")


def contenders(folder: Path) -> dict[str, Callable[[], tuple[Turn, Callable[[], object]]]]:
    """Return by name how each contender is set up."""
    return {
        "json line": lambda: json_line(folder),
        "spans": spans,
        "spans, batch": lambda: spans(BatchSpanProcessor(Encode(), max_queue_size=1 << 20)),
        "spans, evaltap": lambda: spans(CaseSpanProcessor(str(folder / "spans.db"))),
        "turn API": lambda: turn_api(folder),
    }


def measure(turn: Turn, turns: int, pause_seconds: float) -> tuple[list[int], list[int]]:
    """Return the CPU and wall time of each turn on this thread, in nanoseconds."""
    cpu, wall = [], []
    for number in range(turns):
        began, began_cpu = time.perf_counter_ns(), time.thread_time_ns()
        turn(number)
        cpu.append(time.thread_time_ns() - began_cpu)
        wall.append(time.perf_counter_ns() - began)
        if pause_seconds:
            time.sleep(pause_seconds)
    return cpu, wall


def main() -> None:
    """Run all contenders in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pause-ms", type=float, default=2)
    parser.add_argument("--redaction", action="store_true", help="print what share redaction has")
    options = parser.parse_args()
    if options.redaction:
        print_shares(options.turns, options.rounds)
        return
    found: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, set_up in contenders(Path(folder)).items():
                turn, end = set_up()
                measure(turn, 50, 0)
                cpu, wall = (
                    sorted(x) for x in measure(turn, options.turns, options.pause_ms / 1e3)
                )
                end()
                middle, high = len(wall) // 2, len(wall) * 99 // 100
                found.setdefault(name, []).append(
                    (cpu[middle], cpu[high], wall[middle], wall[high])
                )
    median = {
        name: tuple(statistics.median(column) / 1e3 for column in zip(*rows, strict=True))
        for name, rows in found.items()
    }
    columns = (
        *("cpu p50", "cpu p99", "wall p50", "wall p99"),
        *("cpu/json", "cpu/batch", "p99/batch", "added"),
    )
    print(f"{'per turn, us':16}", *(f"{column:>9}" for column in columns))
    for name, figures in median.items():
        # The machine's speed drifts, so contenders are compared within each round.
        ratios = [
            statistics.median(
                own[which] / other[which]
                for own, other in zip(found[name], found[base], strict=True)
            )
            for base, which in (("json line", 0), ("spans, batch", 0), ("spans, batch", 1))
        ]
        if name.startswith("spans, "):
            rounds = zip(found[name], found["spans"], found["spans, batch"], strict=True)
            ratios.append(
                statistics.median(
                    (own[0] - bare[0]) / (batch[0] - bare[0]) for own, bare, batch in rounds
                )
            )
        print(f"{name:16}", *(f"{us:9.0f}" for us in figures), *(f"{x:9.2f}" for x in ratios))


if __name__ == "__main__":
    main()
