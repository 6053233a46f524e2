"""`evaltap why`: explain why a case was not scored."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from evaltap.cli.messages import print_json
from evaltap.cli.options.inspect import WhyOptions
from evaltap.cli.stores import choice_of, keys_of, open_stores
from evaltap.evaluator.analysis.filters.listing import full_name
from evaltap.evaluator.pipeline.maintenance.why import Answer, explained, why
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.wording import readable
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.location import parse_log_location


def run(options: WhyOptions) -> int:
    """Explain the case, or each case that matches the filter."""
    choice = choice_of(options.chosen)
    if (options.case is None) == (not choice):
        raise InputError("expected either a CASE or a choice of cases with --filter or --where")
    log = parse_log_location(options.log) if options.log else None
    with open_stores([options.db]) as store:
        if options.case is not None:
            answers = iter([("", why(store, full_name(store, options.case), log))])
        else:
            found = explained(store, keys_of(store, choice) or [])
            answers = ((key[2], answer) for key, answer in found)
        if options.json:
            data = [{**asdict(one), "complete": one.complete} for _, one in answers]
            print_json(data if options.case is None else data[0])
            return 0 if all(one["complete"] for one in data) else 3
        return 0 if _print(answers) else 3


def _print(answers: Iterable[tuple[str, Answer]]) -> bool:
    """Print the answers, each with the id of its case if there is one; return whether all are complete."""
    complete = True
    for eval_id, answer in answers:
        for line in _lines(answer):
            print(visible(f"{eval_id}: {line}" if eval_id else line))
        complete = complete and answer.complete
    return complete


def _lines(answer: Answer) -> Iterator[str]:
    for metric in answer.metrics:
        reason = " ".join(readable(metric.reason).split())
        yield f"{metric.metric_name}: {metric.status}{': ' if reason else ''}{reason}"
    yield from answer.notes
