"""Texts that would run, load or hide something if they were interpreted as markup."""

import itertools
from typing import Any

from support.builders.cases import make_case, make_turn

CANARY = "window.hacked=1"
BEGINS = (
    "",
    "'",
    '"',
    "-->",
    "]]>",
    "</textarea>",
    "</title>",
    "</script>",
    "</style>",
    "\u202e",
    "\x00",
    "{{",
    "`",
)
BODIES = (
    f"<script>{CANARY}</script>",
    f"<img src=x onerror={CANARY}>",
    f"<svg/onload={CANARY}>",
    f"<a href='javascript:{CANARY}'>x</a>",
    f"\" onmouseover={CANARY} x=\"",
    f"<iframe srcdoc='<script>{CANARY}</script>'>",
    f"<form action=/logout method=post><button autofocus onfocus={CANARY}>",
    "<div hx-post=/review/undo hx-trigger=load>x</div>",
    f"<body onpageshow={CANARY}>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<base href='http://evil.example/'>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    f"<math><mi xlink:href='data:x,<script>{CANARY}</script>'>",
    "{{7*7}}{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}",
    f"<details open ontoggle={CANARY}>",
    "'; DROP TABLE cases; --",
    f"<style>@import 'http://evil.example';</style><x onclick={CANARY}>",
)  # fmt: skip
MANY = [begin + body for begin, body in itertools.product(BEGINS, BODIES)]


def attack_cases(payloads: list[str]) -> list[dict[str, Any]]:
    """Return a case for each payload, which is in every field of it that may hold text."""
    cases = []
    for number, text in enumerate(payloads):
        call = {
            "name": f"t{text}", "arguments": {f"k{text}": text, "n": number}, "result": {text: [text]},
            "agent": text, "error": {"type": text, "message": text} if number % 2 else None,
        }  # fmt: skip
        made = make_turn(
            f"t-{number}", text, userContent={"role": "user", "content": text}, tools=[call],
            telemetry={"models": [text], "latencyMs": 5, "status": "ok"}, capture={text or "x": "missing"},
        )  # fmt: skip
        expected = make_turn(
            f"t-{number}", f"not {text}", userContent=made["userContent"],
            tools=[call | {"arguments": {f"k{text}": f"other {text}", "n": number}, "error": None}],
        )  # fmt: skip
        source = {"revision": 1, "service": text}
        session = {"appName": f"app{text}", "userId": text}
        case = make_case(f"{number:05d}{text}", [made], source=source, sessionInput=session)
        cases.append(case | {"conversation": [expected], "evalSetId": f"set{text}"})
    return cases
