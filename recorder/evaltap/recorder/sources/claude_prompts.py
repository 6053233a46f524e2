"""The prompts of a Claude Code transcript: finds the user's messages and the lines that follow from each.

A message typed while Claude works has no `user` line if the current turn picks it up: it appears as an
attachment `queued_command`, and as a `queue-operation` that removes it. `parentUuid` makes the lines a
tree: a user who rewinds starts another branch.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evaltap.schemas.data import JsonObject

INTERRUPTED = "[Request interrupted by user"
_NOT_SAID = (
    INTERRUPTED,
    "<bash-",
    "<cross-session-message",
    "<goal>",
    "<ide_opened_file>",
    "<ide_selection>",
    "<local-command-",
    "<session-start-hook>",
    "<system-reminder>",
    "<task-notification>",
    "<tick>",
    "Caveat: ",
)
"""Prefixes of text that Claude Code writes on the user's behalf."""
_REMINDERS = re.compile(r"\A(?:\s*<system-reminder>.*?</system-reminder>\s*)+", re.DOTALL)
"""Text that may precede the user's words in the same message."""
_COMMAND = "<command-name>"


@dataclass(slots=True)
class Prompt:
    """A user message and the lines that follow from it."""

    line: JsonObject
    texts: list[str]
    """The message, followed by those typed while Claude worked on it."""
    lines: list[JsonObject] = field(default_factory=list)


def prompts_of(lines: Sequence[JsonObject]) -> list[Prompt]:
    """Split the lines of a session into turns; prompts without a response are skipped."""
    attached = {picked_up(line) for line in lines if "attachment" in line}
    prompts: list[Prompt] = []
    for line in lines:
        if (text := _prompt_text(line)) is not None:
            prompts.append(Prompt(line, [text]))
        elif prompts and (typed := _interjection(line, attached)):
            prompts[-1].texts.append(typed)
        elif prompts and not picked_up(line):
            prompts[-1].lines.append(line)
    return [
        prompt for prompt in prompts if any(line["type"] == "assistant" for line in prompt.lines)
    ]


def _prompt_text(line: JsonObject) -> str | None:
    """Return the user's message in this line, or None."""
    if line["type"] != "user" or line.get("isMeta") or line.get("isCompactSummary"):
        return None
    blocks = blocks_of(line)
    if any(block.get("type") == "tool_result" for block in blocks):
        return None
    if not (text := _user_words(blocks)):
        return None
    if _COMMAND in text:
        command = (_between(text, "command-name"), _between(text, "command-args"))
        return " ".join(part for part in command if part) or None
    return text


def _interjection(line: JsonObject, attached: Collection[str]) -> str | None:
    """Return a message that the user typed while Claude worked and the current turn picked up, or None.

    Only the attachment shows who sent it. A client without attachments writes only the queue operation.
    """
    queued = line.get("attachment")
    if not isinstance(queued, Mapping):
        text = picked_up(line)
        return text if text and text not in attached else None
    origin = queued.get("origin")
    sender = origin.get("kind") if isinstance(origin, Mapping) else None
    if queued.get("commandMode", "prompt") != "prompt" or queued.get("isMeta"):
        return None
    return picked_up(line) if sender in ("human", None) else None


def picked_up(line: JsonObject) -> str:
    """Return the text of a message that the current turn picked up; empty for any other line."""
    queued = line.get("attachment")
    if isinstance(queued, Mapping) and queued.get("type") == "queued_command":
        content = queued.get("prompt")
    elif line.get("type") == "queue-operation" and line.get("reason") == "absorbed_mid_turn":
        content = line.get("content")
    else:
        return ""
    return _user_words(blocks_of({"message": {"content": content}}))


def _user_words(blocks: Iterable[JsonObject]) -> str:
    """Return the user's own words in the blocks of a message."""
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    own = [_REMINDERS.sub("", text) for text in texts]
    return "\n".join(text for text in own if text and not text.lstrip().startswith(_NOT_SAID))


def rewound_prompts(prompts: Sequence[Prompt], parents: Mapping[str, object]) -> set[object]:
    """Return the ids of the prompts on branches that the session's last prompt does not follow from."""

    def with_ancestors(key: object, until: Collection[object] = ()) -> dict[object, None]:
        found: dict[object, None] = {}
        while key is not None and key not in found:
            found[key] = None
            if key in until:
                break
            key = parents.get(str(key))
        return found

    if not prompts:
        return set()
    kept = with_ancestors(prompts[-1].line.get("uuid"))
    found: set[object] = set()
    for prompt in prompts:
        branch = with_ancestors(prompt.line.get("uuid"), kept)
        # A branch with a separate root is a separate conversation, or was cut off by a compaction.
        if len(branch) > 1 and next(reversed(branch)) in kept:
            found.add(prompt.line.get("uuid"))
    return found


def _between(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def blocks_of(line: JsonObject) -> list[JsonObject]:
    message = line.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict)]
