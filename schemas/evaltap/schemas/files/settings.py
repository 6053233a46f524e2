"""`evaltap.toml`: a project's settings, as the `EVALTAP_*` variables they represent.

An argument overrides a variable, a variable overrides the file. The file holds no secrets, and
nothing that runs code or sends a key somewhere: a folder from an untrusted source may bring one.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.files.refused import refuse_device
from evaltap.schemas.text import did_you_mean

FILE_NAME: Final = "evaltap.toml"
FILE_VARIABLE: Final = "EVALTAP_CONFIG"
"""Names the file, instead of searching for it."""

DISCOVERED: Final = "_EVALTAP_DISCOVERED"
"""The variables in effect, separated by spaces, that a file holds which nobody named."""

TomlValue = object
"""The value types of TOML: texts, numbers, booleans, times, lists and tables."""

_PATHS: Final = ("log", "store", "metrics", "references", "monitor")
_JUDGE: Final = (
    "model",
    "budget_usd",
    "budget_tokens",
    "budget_calls",
    "cache",
    "concurrency",
    "rpm",
    "tpm",
    "timeout",
    "retries",
    "price_input",
    "price_output",
)
_SCORE: Final = ("fail_on", "p95_ms", "allow_agent_errors", "case_seconds", "thresholds")
_PAGE: Final = ("trace_url",)
_KAFKA: Final = ("client",)
_PAIRS: Final = ("thresholds", "redaction_policy")
"""Tables that a variable holds as `name=value,name=value`."""
_ELSEWHERE: Final = {
    "redaction_key": "a secret does not belong in a file; set EVALTAP_REDACTION_KEY",
    "api_key": "a secret does not belong in a file; set EVALTAP_JUDGE_API_KEY",
    "base_url": "it decides where keys are sent; set EVALTAP_JUDGE_BASE_URL, or baseURL in the metrics file",
    "allow_code": "whoever runs the command decides that; pass --allow-code or set EVALTAP_ALLOW_CODE",
    "allow_variables": "whoever runs the command decides that; set EVALTAP_ALLOW_VARIABLES",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """A settings file, with the value of each `EVALTAP_*` variable."""

    path: Path
    variables: Mapping[str, str]


def find_settings(start: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the file named by EVALTAP_CONFIG, otherwise the nearest one in `start` or above it.

    The search stops at the root of a git checkout.
    """
    if named := environ.get(FILE_VARIABLE, "").strip():
        return Path(named)
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if (folder / ".git").exists():
            break
    return None


def read_settings(path: Path, recorder_settings: Iterable[str]) -> Settings:
    """Read a settings file; `recorder_settings` are the names allowed in its table [recorder].

    Paths in it are relative to its folder. Raises ConfigurationError with the file and the key.
    """
    import tomllib  # most processes have no such file

    try:
        refuse_device(path)
        data = tomllib.loads(path.read_text("utf-8"))
    except InputError as error:
        raise ConfigurationError(str(error)) from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # also from numbers of thousands of digits
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from error
    try:
        return Settings(path, _variables(data, path.parent, tuple(recorder_settings)))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _variables(
    data: Mapping[str, TomlValue], folder: Path, recorder_settings: tuple[str, ...]
) -> dict[str, str]:
    recorder = tuple(name for name in recorder_settings if name not in ("log", "redaction_key"))
    tables: dict[str, tuple[str, tuple[str, ...]]] = {
        "recorder": ("EVALTAP_", recorder),
        "score": ("EVALTAP_", _SCORE),
        "judge": ("EVALTAP_JUDGE_", _JUDGE),
        "page": ("EVALTAP_", _PAGE),
        "kafka": ("EVALTAP_KAFKA_", _KAFKA),
    }
    found: dict[str, str] = {}
    for key, value in data.items():
        if key in _PATHS:
            found[f"EVALTAP_{key.upper()}"] = _place(key, value, folder)
            continue
        if key not in tables:
            raise _unknown(key, "", (*_PATHS, *tables))
        prefix, known = tables[key]
        if not isinstance(value, dict):
            raise ConfigurationError(f"{key}: found {value!r}; expected a table, [{key}]")
        for name, setting in value.items():
            if name not in known:
                raise _unknown(name, f"{key}.", known)
            found[prefix + name.upper()] = _text(f"{key}.{name}", name, setting)
    return found


def _unknown(name: str, place: str, known: Iterable[str]) -> ConfigurationError:
    if name in _ELSEWHERE:
        return ConfigurationError(f"{place}{name}: {_ELSEWHERE[name]}")
    names = list(known)
    hint = did_you_mean(name, names) or f"known: {', '.join(names)}"
    return ConfigurationError(f"{place}{name}: unknown setting; {hint}")


def _place(key: str, value: TomlValue, folder: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{key}: found {value!r}; expected a path in quotes")
    return value if "://" in value else str(folder / value)


def _text(place: str, name: str, value: TomlValue) -> str:
    """Return a value as a variable holds it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict) and name in _PAIRS:
        return ",".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise ConfigurationError(f"{place}: found {value!r}, which no setting accepts") from None
