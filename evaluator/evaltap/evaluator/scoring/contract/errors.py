"""The tree of the evaluator's errors; each is defined where it is raised.

EvaltapError
├── InputError, FormatError        a file, a record or an argument is invalid
├── ConfigurationError
│   ├── MetricError                a metric cannot be built from its criterion: correct the metrics file
│   └── UnknownEvaluatorError      no installed evaluator has that name: install it or correct the name
├── EmbeddingError                 there are no vectors, so no similarity (`contract.embedder`)
│   ├── EmbeddingsNotConfiguredError    no model is named: set one
│   ├── EmbeddingsUnavailableError      the endpoint could not be reached or rejected the request
│   └── EmbeddingInvalidError           the answer contains no usable vectors
├── JudgeError                     the judge returned no verdict (`contract.judge`; exit 3: incomplete)
│   ├── JudgeNotConfigured         no judge is named: set one
│   ├── JudgeUnavailable           not reachable, overloaded or too slow: try again later
│   ├── JudgeRejected              the endpoint rejected the request: correct key, model or parameters
│   │   └── AnswerFormRefusedError      ... only the requested form of answer: request a simpler form
│   ├── BudgetSpentError                the request could exceed the budget: raise it, or continue later
│   └── JudgeInvalid               the answer contains no usable verdict
├── StoreError                     a DuckDB file that cannot be used (`store.errors`)
│   └── StoreHeldError             ... because another process holds it: wait for or stop that process
├── StorageError                   the disk damaged the file, or cannot store it (`store.errors`)
│   └── NoMemoryError              ... or DuckDB's memory limit is too low
└── TopicsUnavailableError         a Kafka cluster that cannot be written to for now (`topics.writer`)

Failures while a case is scored are not raised but returned, as `EvaluatorFailure`.
"""

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.text import did_you_mean


class MetricError(ConfigurationError):
    """Report a metric that cannot be built: what was found, what was expected, what to do."""

    def __init__(self, message: str, *, metric_name: str = "") -> None:
        self.metric_name = metric_name
        super().__init__(f"metric '{metric_name}': {message}" if metric_name else message)


class UnknownEvaluatorError(ConfigurationError):
    """Report an evaluator name that no installed package provides."""

    def __init__(self, name: str, installed: list[str]) -> None:
        self.name = name
        self.installed = installed
        hint = did_you_mean(name, installed) or "correct the name or install its package;"
        super().__init__(f"no evaluator named '{name}'; {hint} see `evaltap metrics`")
