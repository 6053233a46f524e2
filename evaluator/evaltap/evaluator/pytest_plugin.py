"""The pytest plugin: eval cases as test items, by marker, or scored inside a test, by fixture.

pytest loads it wherever evaltap is installed, so it imports nothing else of evaltap until a test needs it.
A failed case fails the test.  A case that could not be scored is an error, which pytest only knows before a
test starts (the marker scores during set-up).  A case that was not evaluated skips the test, or fails it
with `strict`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest

if TYPE_CHECKING:
    from evaltap.evaluator.reports.model import CaseReport
    from evaltap.evaluator.scoring.given import Metrics
    from evaltap.schemas.data import CaseData
    from evaltap.schemas.formats.case import EvalCase

    ScoreCase: TypeAlias = Callable[..., CaseReport]

T = TypeVar("T")
Settings: TypeAlias = dict[str, Any]  # Any: whatever the author of a marker wrote
MARKER = "evaltap(cases, metrics, thresholds=None, strict=None, services=None): " + (
    "score each eval case of a file as a separate test; without `cases`, set the defaults of the fixture"
    " evaltap_score"
)
_NAMES = ("cases", "metrics", "thresholds", "strict", "services")
_FIXTURE = "evaltap_case"
_REPORT = pytest.StashKey["CaseReport"]()


class Hooks:
    """Hooks that this plugin calls."""

    @pytest.hookspec(firstresult=True)
    def pytest_evaltap_case(self, item: pytest.Item, case: "CaseData") -> "CaseData | None":
        """Return the case to score instead, such as one that an agent has just run; None for this one."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `evaltap_strict`."""
    parser.addini(
        "evaltap_strict", "fail, not skip, what evaltap could not evaluate", "bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case that the marker names."""
    settings = _settings(metafunc.definition)
    if not settings.get("cases"):
        return
    from evaltap.evaluator.pytest_scoring import read_cases

    path = metafunc.definition.path.parent / settings["cases"]
    if not (cases := _read(lambda: read_cases(path))):
        raise pytest.Collector.CollectError(
            f"evaltap: {path}: contains no eval cases; add at least one"
        )
    if _FIXTURE not in metafunc.fixturenames:
        metafunc.fixturenames.append(_FIXTURE)
    ids = [str(case.get("evalId")) for case in cases]
    metafunc.parametrize(_FIXTURE, cases, ids=ids, indirect=True)


@pytest.fixture
def evaltap_case(request: pytest.FixtureRequest) -> "CaseReport":
    """The case of this test, scored; for tests that the marker `evaltap(cases=…)` made."""
    report = _scored(request.node)
    if report is None:
        pytest.fail(
            "evaltap: the fixture evaltap_case needs @pytest.mark.evaltap(cases=…, metrics=…)",
            pytrace=False,
        )
    return report


@pytest.fixture
def evaltap_score(request: pytest.FixtureRequest) -> "ScoreCase":
    """Score a case that the test itself has produced, and fail the test when a metric fails.

    Call it with the case (an `EvalCase` or JSON data) and metrics (a file or a list), `thresholds`,
    `strict`, `services`; what is left out comes from the marker `evaltap`.  It returns a `CaseReport`.
    """

    def score(
        case: "EvalCase | CaseData", metrics: "Metrics | None" = None, **given: object
    ) -> "CaseReport":
        if unknown := sorted(set(given) - set(_NAMES[2:])):
            raise TypeError(
                f"evaltap_score: no argument {unknown[0]!r}; known: {', '.join(_NAMES)}"
            )
        named = {name: value for name, value in given.items() if value is not None}
        settings = _settings(request.node) | named
        if metrics is not None:
            settings["metrics"] = metrics
        report = _score(request.node, case, settings)
        _decide(report, strict=_strict(request.config, settings))
        return report

    return score


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Score the case of a test that the marker made; what goes wrong here is an error to pytest."""
    _scored(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail or skip the test of a case after its own body has passed."""
    if (report := item.stash.get(_REPORT, None)) is not None:
        _decide(report, strict=_strict(item.config, _settings(item)))


def _scored(item: pytest.Item) -> "CaseReport | None":
    """Return the case of a test that the marker made, scored once; None for any other test."""
    if _REPORT in item.stash:
        return item.stash[_REPORT]
    params = getattr(getattr(item, "callspec", None), "params", {})
    if _FIXTURE not in params:
        return None
    case = params[_FIXTURE]
    live = _read(lambda: item.ihook.pytest_evaltap_case(item=item, case=case), _failed)
    report = _score(item, live or case, _settings(item))
    if report.status == "error":
        pytest.fail(_explained(report), pytrace=False)
    item.stash[_REPORT] = report
    return report


def _score(node: pytest.Item, case: "EvalCase | CaseData", settings: Settings) -> "CaseReport":
    from evaltap.evaluator.pytest_scoring import score_case

    return score_case(node, case, settings)


def _explained(report: "CaseReport") -> str:
    from evaltap.evaluator.pytest_scoring import explanation

    return explanation(report)


def _decide(report: "CaseReport", *, strict: bool) -> None:
    """Fail or skip the test that runs, or let it pass."""
    missing = any(cell.status == "not_evaluated" for cell in report.cells)
    if report.status in ("crashed", "failed", "error") or (missing and strict):
        pytest.fail(_explained(report), pytrace=False)
    if missing:
        pytest.skip(_explained(report))


def _settings(node: pytest.Item) -> Settings:
    """Return what the markers of a test say, the nearest last."""
    settings: Settings = {}
    for marker in reversed(list(node.iter_markers("evaltap"))):
        unknown = sorted(set(marker.kwargs) - set(_NAMES))
        if marker.args or unknown:
            found = f"{unknown[0]!r}" if unknown else "one without a name"
            raise pytest.Collector.CollectError(
                f"{node.nodeid}: evaltap has no argument {found}; known: {', '.join(_NAMES)}"
            )
        settings.update(marker.kwargs)
    return settings


def _strict(config: pytest.Config, settings: Settings) -> bool:
    given = settings.get("strict")
    return bool(config.getini("evaltap_strict") if given is None else given)


def _failed(told: str) -> BaseException:
    return pytest.fail.Exception(told, pytrace=False)


def _read(
    reading: Callable[[], T],
    mistake: Callable[[str], BaseException] = pytest.Collector.CollectError,
) -> T:
    """Return what is read; a user's mistake is a message, never a traceback.

    `mistake` makes the exception; the default has no traceback while tests are collected only.
    """
    from evaltap.schemas.errors import EvaltapError

    try:
        return reading()
    except EvaltapError as error:
        raise mistake(f"evaltap: {error}") from None
