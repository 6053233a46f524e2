"""How much of what is planted in free text the redactor finds, and how much ordinary text it touches.

Recall: secrets of the sixty formats of `leak_corpus.py` in sentences as people and tools write them,
and what has no format: passwords as people mention them, numbers as people write them.
Then the corpus of `redaction_corpus.py`: what redact.md claims, by group.
False positives: ordinary business sentences with ids, dates, amounts, versions, hashes and numbers of all
lengths; the corpus's harmless lines; the texts of the repository's recorded spans.

    python docs/benchmarks/redaction_recall.py [--number 12000] [--seed 1]

With `--against TREE` the redactor of another checkout is measured beside this one, in processes that take
turns: recall on the corpus, and what a turn costs in CPU.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evaltap.recorder import PatternRedactor

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.corpora.leak_corpus import FORMATS, Maker  # noqa: E402  (its folder is put on the path above)
from support.corpora.redaction_corpus import entries, harmless, is_found  # noqa: E402

SENTENCES = (
    "{}",
    "Hello, I tried it with {} but it did not work, can you help?",
    "the tool said:\n> {}\nand then stopped",
    "- first\n- {}\n- last",
    "({})",
    '"{}"',
    "`{}`",
    "Result: status=ok; detail={}; took 12 ms",
    "| name | value |\n|---|---|\n| x | {} |",
    "<p>{}</p>",
)

UNFORMATTED = {
    "password, said": (
        "my password is {}",
        "pw is {}",
        "password was {} until May",
        "Passwort: {}",
    ),
    "password, quoted": ("use the password '{}'", 'log in with password "{}"', "pass: {}"),
    "phone, national": ("call me at {}", "my number is {}", "Tel. {}", "reach me under {}"),
    "e-mail, spelt": ("write to {} please", "{} is my address"),
    "name": ("my name is {}", "this is {} speaking"),
    "street": ("I live at {}", "ship it to {}"),
}

ORDINARY = (
    "Order {id} was shipped on {date} at {time} and weighs {small}.{small} kg.",
    "Invoice {year}-{six} over {small},{three}.{two} EUR is due on {date}.",
    "Ticket #{six} (priority {one}) was moved from queue {two} to queue {two}.",
    "Version {one}.{two}.{one} of {ip} replaces build {year}{four}.{six}.",
    "The run took {six} ms, read {eight} rows and wrote {five} of them.",
    "Tracking number 1Z{six}AA{eight}, SKU {thirteen}.",
    "commit {hash} touches {two} files, trace {trace}",
    "customer {eight} has {three} points, reference {twelve}",
    "timestamp {epoch}, {epoch}{three}, offset {nine}",
    "Please reset your password; the link is valid for {two} hours.",
    "The token limit is {four} tokens, {three} were used.",
    "Room {three}, {two} Main Street, open {time}-{time}, {small} C",
    "{six} {six} {four}, {three}-{three}-{three}, {two}:{two}:{two}",
    "ISBN 978-3-16-{six}-{one}, VAT DE{nine}, account {ten}",
    "coordinates {two}.{six}, {two}.{six}; ratio {two}:{one}; p={one}.{six}",
    "uuid {uuid} at path /var/lib/app/{year}/{two}/{hash}.json",
)


def unformatted(random_: random.Random, kind: str, maker: Maker) -> str:
    """Return something of a kind that has no format of its own."""
    if kind.startswith("password"):
        return maker.word()
    if kind.startswith("phone"):
        number = maker.digits(7)
        return random_.choice((f"0170 {number}", f"(415) 555-{number[:4]}", f"415-555-{number[:4]}",
                               f"030/{number}", f"555{number}"))  # fmt: skip
    if kind.startswith("e-mail"):
        return f"{maker.any(6).lower()} at example dot com"
    if kind == "name":
        return random_.choice(("Alice Smith", "Jörg Müller", "Nguyen Van An", "Olu Adeyemi"))
    return (
        f"{random_.randrange(1, 99)} {random_.choice(('Elm', 'High', 'King'))} Street, Springfield"
    )


def ordinary(random_: random.Random) -> str:
    """Return an ordinary sentence with random numbers."""
    lengths = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "nine": 9,
               "ten": 10, "twelve": 12, "thirteen": 13}  # fmt: skip
    values = {
        name: str(random_.randrange(10 ** (length - 1), 10**length))
        for name, length in lengths.items()
    }
    bits = {"hash": 160, "trace": 128}
    hexes = {name: f"{random_.getrandbits(n):0{n // 4}x}" for name, n in bits.items()}
    text = hexes["trace"]
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return random_.choice(ORDINARY).format(
        **values,
        **hexes,
        uuid=uuid,
        small=random_.randrange(1, 90),
        year=random_.randrange(2019, 2027),
        date=f"{random_.randrange(2019, 2027)}-{random_.randrange(1, 13):02}-{random_.randrange(1, 29):02}",
        time=f"{random_.randrange(24):02}:{random_.randrange(60):02}",
        epoch=random_.randrange(1_500_000_000, 1_900_000_000),
        ip=".".join(str(random_.randrange(256)) for _ in range(4)),
        id=f"{random_.choice('ABX')}-{random_.randrange(10**5)}",
    )


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)


def recorded_texts() -> list[str]:
    """Return the distinct texts of the repository's recorded spans and cases, of a line or more."""
    found: dict[str, None] = {}
    for path in sorted((ROOT / "tests/data").rglob("*.json")):
        try:
            found.update(dict.fromkeys(texts_of(json.loads(path.read_text("utf-8")))))
        except ValueError:
            continue
    return [text for text in found if len(text) >= 20]


PROSE = (
    "Your order A-100 was shipped on 2024-05-06 with DHL. The invoice of 99.90 EUR is attached; please reply"
    " to this message if something is missing. We also opened ticket #12345 for the second parcel. "
)
CODE = """def load(path: str) -> dict:
    with open(path) as file:
        return json.load(file)  # key: value pairs

for key, value in load("x.json").items():
    print(f"{key}={value}")
"""


def typical_turn() -> dict[str, Any]:
    """Return a turn of an agent with four calls: rows as JSON, code, prose, an object."""
    rows = [
        {"id": f"ord-{n}", "status": "shipped", "url": f"https://example.com/orders/{n}?lang=en",
         "at": "2024-05-06T10:00:00Z", "customer": {"id": f"c{n}", "tier": "gold"}, "note": PROSE[:120]}
        for n in range(8)
    ]  # fmt: skip
    commit = {"commit": "3f786850e387550fdab836ed7e6dc881de23001b", "files": ["a/b/c.py"] * 10}
    arguments = {"query": PROSE[:80], "path": "/var/lib/app/x.json", "limit": 10, "status": "open"}
    tools = [
        {"id": f"call_{index}", "name": "search", "arguments": arguments, "result": result}
        for index, result in enumerate((json.dumps(rows), CODE * 6, PROSE * 8, commit))
    ]
    turn = {
        "invocationId": "i",
        "userContent": {"role": "user", "content": PROSE * 2},
        "finalResponse": {"role": "assistant", "content": PROSE * 4},
        "tools": tools,
    }
    return {"evalId": "s", "sessionInput": {"appName": "a"}, "actualConversation": [turn]}


def recorded_values() -> list[Any]:
    """Return the recorded spans and cases of the repository."""
    values = []
    for path in sorted((ROOT / "tests/data").rglob("*.json")):
        try:
            values.append(json.loads(path.read_text("utf-8")))
        except ValueError:
            continue
    return values


def measure(seed: int) -> dict[str, Any]:
    """Return recall by group and the CPU of a turn, of whichever redactor this process imports."""
    redact = PatternRedactor(b"k" * 32)
    total: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for entry in entries(seed):
        total[entry.group] += 1
        missed[entry.group] += not is_found(entry, redact.value(entry.value))
    lines = harmless()
    turn, recorded = typical_turn(), recorded_values()
    return {
        "missed": missed,
        "total": total,
        "touched": sum(redact.value(line) != line for line in lines),
        "lines": len(lines),
        "seconds": {
            "a turn": best_of(lambda: redact(turn), 50),
            "recorded spans": best_of(lambda: [redact.value(value) for value in recorded], 1),
        },
    }


def best_of(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of one of `times` calls, in the best of three rounds."""
    rounds = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - began) / times)
    return min(rounds)


def measured_in(tree: Path, seed: int) -> dict[str, Any]:
    """Return the measures of the redactor of a checkout, taken in a process of its own."""
    path = os.pathsep.join(str(tree / part) for part in ("schemas", "recorder", "evaluator"))
    command = [sys.executable, __file__, "--measure", "--seed", str(seed)]
    done = subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path}
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def print_corpus(seed: int, against: Path | None) -> None:
    """Print recall by group, false positives and, beside another checkout, cost."""
    trees = [ROOT] if against is None else [against, ROOT]
    rounds = [
        [measured_in(tree, seed) for tree in trees] for _ in range(1 if against is None else 3)
    ]
    found = rounds[0]
    for group, number in found[-1]["total"].items():
        shares = (1 - one["missed"].get(group, 0) / number for one in found)
        print(f"    {group:42} {number:6}" + "".join(f"{share:9.1%}" for share in shares))
    shares = (1 - sum(one["missed"].values()) / sum(one["total"].values()) for one in found)
    print(
        f"    {'all':42} {sum(found[-1]['total'].values()):6}"
        + "".join(f"{s:9.2%}" for s in shares)
    )
    touched = ", ".join(f"{one['touched']} of {one['lines']}" for one in found)
    print(f"    harmless lines touched: {touched}")
    for what in found[-1]["seconds"]:
        best = [min(one[index]["seconds"][what] for one in rounds) for index in range(len(trees))]
        ratio = f", {best[1] / best[0]:.2f} times" if len(best) > 1 else ""
        print(f"    CPU of {what}: " + " and ".join(f"{one * 1e3:.2f} ms" for one in best) + ratio)


def main() -> None:
    """Print recall by kind and the rates of false positives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--against", type=Path, metavar="TREE", help="another checkout to compare with"
    )
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.seed)))
        return
    print("corpus (another checkout first, if one was named):")
    print_corpus(options.seed, options.against)
    redact = PatternRedactor(b"k" * 32)
    random_, maker = random.Random(options.seed), Maker(options.seed)

    missed: dict[str, int] = {}
    for planted in maker.planted(options.number):
        text = random_.choice(SENTENCES).replace("{}", planted.text)
        if planted.secret in redact.value(text):
            missed[planted.format] = missed.get(planted.format, 0) + 1
    total = sum(missed.values())
    print(f"with a format: {len(FORMATS)} formats, {options.number} planted, recall "
          f"{1 - total / options.number:.2%}")  # fmt: skip
    for name, count in sorted(missed.items()):
        print(f"    {name}: {count} of {options.number // len(FORMATS)} missed")
    each = 500
    print("without a format:")
    for kind, sentences in UNFORMATTED.items():
        found = 0
        for _ in range(each):
            secret = unformatted(random_, kind, maker)
            found += secret not in redact.value(random_.choice(sentences).replace("{}", secret))
        print(f"    {kind}: recall {found / each:.0%}")
    touched = 0
    examples: list[str] = []
    for _ in range(options.number):
        text = ordinary(random_)
        if (after := redact.value(text)) != text:
            touched += 1
            examples.append(after)
    share = touched / options.number
    print(f"false positives: {touched} of {options.number} ordinary sentences, {share:.2%}")
    for example in examples[:5]:
        print(f"    {example}")
    recorded = recorded_texts()
    changed = [text for text in recorded if redact.value(text) != text]
    if recorded:
        print(f"texts of recorded spans and cases: {len(changed)} of {len(recorded)} touched,"
              f" {len(changed) / len(recorded):.2%}")  # fmt: skip


if __name__ == "__main__":
    main()
