"""The commands of the group "maintain", their options and examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaltap.cli.declared import STORE, argument, option, setting
from evaltap.cli.options.shared import as_json


@dataclass(slots=True, kw_only=True, repr=False)
class DoctorOptions:
    """The log to check, and the store that consumed it.

    examples:
      evaltap doctor                         # what the recorder sees here
      evaltap doctor --log agent.log.db --db cases.duckdb  # and every turn
      evaltap doctor --log kafka://host:9092/evaltap.cases --db cases.duckdb

    exit code: 0 all is well; 1 a gap, turns dropped for any reason but sampling, a
    problem, or a producer that ended without a closing manifest; 2 bad input
    """

    log: str | None = option("--log LOG", "the log to check: a file, or kafka://host:port/topic")
    usual_log: str | None = setting("EVALTAP_LOG")
    db: Path | None = option("--db X.duckdb", "the DuckDB file that consumed it", variable=STORE)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class CompletionOptions:
    """The shell that the script is for.

    examples:
      eval "$(evaltap completion bash)"                  # in ~/.bashrc
      evaltap completion zsh > "${fpath[1]}/_evaltap"
      evaltap completion fish > ~/.config/fish/completions/evaltap.fish
    """

    shell: Literal["bash", "zsh", "fish", "tcsh"] = argument(
        "{bash,zsh,fish,tcsh}", "the shell to complete for"
    )
