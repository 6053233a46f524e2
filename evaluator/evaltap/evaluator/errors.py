"""The errors of the scoring core that a caller would react to.

EvaltapError
├── ConfigurationError
│   ├── MetricError              a metric cannot be built from its criterion: mend the metrics file
│   └── UnknownEvaluatorError    no installed evaluator has that name: install it or mend the name
├── EmbeddingError               there are no vectors, so no similarity
│   ├── EmbeddingsNotConfigured  no model is named: set one
│   ├── EmbeddingsUnavailable    the endpoint could not be reached or refused
│   └── EmbeddingInvalid         it answered, but not with vectors
└── JudgeError                   the judge gave no verdict (exit 3: incomplete, nobody is at fault)
    ├── JudgeNotConfigured       no judge is named: set one
    ├── JudgeUnavailable         not reachable, overloaded or too slow: try again later
    ├── JudgeRejected            the endpoint refused the request: mend key, model or parameters
    │   └── AnswerFormRefused    ... only the form of answer that was asked for: ask in a simpler one
    ├── BudgetSpent              asking could cost more than is left: give more, or go on later
    └── JudgeInvalid             it answered, but not with a verdict

What goes wrong while a case is scored is not raised but returned, as `EvaluatorFailure`.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from evaltap.schemas.errors import ConfigurationError, EvaltapError

if TYPE_CHECKING:
    from evaltap.evaluator.judge import JudgeReply, JudgeRequest


class MetricError(ConfigurationError):
    """Report a metric that cannot be built: what was found, what was expected, what to do."""

    def __init__(self, message: str, *, metric_name: str = "") -> None:
        self.metric_name = metric_name
        super().__init__(f"metric '{metric_name}': {message}" if metric_name else message)


class UnknownEvaluatorError(ConfigurationError):
    """Report an evaluator name that nothing installed answers to."""

    def __init__(self, name: str, installed: list[str]) -> None:
        self.name = name
        self.installed = installed
        super().__init__(
            f"no evaluator named '{name}'; installed: {', '.join(installed) or 'none'}; "
            "correct the name or install the package that provides it"
        )


class EmbeddingError(EvaltapError):
    """Base of what keeps texts from having vectors; the score is then NULL, never 0."""

    exit_code = 3


class EmbeddingsNotConfigured(EmbeddingError):
    """Report that no embedding model is named, or neither its base URL nor its key."""


class EmbeddingsUnavailable(EmbeddingError):
    """Report an endpoint that could not be reached, was overloaded or refused the request."""


class EmbeddingInvalid(EmbeddingError):
    """Report an answer that holds no usable vectors."""


class JudgeError(EvaltapError):
    """Base of what keeps a judge from giving a verdict; the score is then NULL, never 0."""

    exit_code = 3


class JudgeNotConfigured(JudgeError):
    """Report that no judge model is named, or neither its base URL nor its key."""


class JudgeUnavailable(JudgeError):
    """Report a judge that could not be reached, was overloaded or did not answer in time.

    `retry_after` is what the server asked to wait; `maybe_billed` says that it may have done the work.
    """

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, maybe_billed: bool = False
    ) -> None:
        self.retry_after = retry_after
        self.maybe_billed = maybe_billed
        super().__init__(message)


class JudgeRejected(JudgeError):
    """Report a request that the judge's endpoint refused (key, model or parameters)."""


class AnswerFormRefused(JudgeRejected):
    """Report a server that does not know the form of answer; `simpler` asks for a simpler one."""

    def __init__(self, message: str, simpler: "JudgeRequest") -> None:
        self.simpler = simpler
        super().__init__(message)


class BudgetSpent(JudgeError):
    """Report a request that was not made, as it could have cost more than is left."""


class JudgeInvalid(JudgeError):
    """Report an answer that holds no usable verdict; `reply` tells what it cost, where that is known."""

    def __init__(self, message: str, *, reply: "JudgeReply | None" = None) -> None:
        self.reply = reply
        super().__init__(message)
