"""Write the reference page of the recorder's settings: `python -m evaltap.recorder.config_reference`."""

from dataclasses import fields

from evaltap.recorder.config import RecorderConfig

_HEAD = """\
# Recorder settings

Generated from `RecorderConfig` by `python -m evaltap.recorder.config_reference`; do not edit.

Each setting is a keyword argument of `Recorder` and of `RecorderConfig`. Where it is not given, the
environment variable counts, then the default. A wrong argument raises `ConfigurationError` when the
recorder is made. A wrong variable is logged as a warning and the default holds, so that a typing
mistake in a deployment never stops an agent.

Switches take `1`, `true`, `yes`, `on` and `0`, `false`, `no`, `off`. Sizes are bytes.

| setting | variable | default | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """Return the page as Markdown."""
    rows = []
    for item in fields(RecorderConfig):
        data = item.metadata
        default = "" if data["default"] is None else f"`{data['default']}`"
        rows.append(f"| `{item.name}` | `{data['variable']}` | {default} | {data['meaning']} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    print(reference(), end="")
