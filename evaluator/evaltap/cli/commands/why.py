"""`evaltap why`: explain why a case was not scored."""

from dataclasses import asdict

from evaltap.cli.messages import print_json
from evaltap.cli.options.inspect import WhyOptions
from evaltap.cli.stores import choice_of, keys_of, open_stores
from evaltap.evaluator.analysis.filters.listing import full_name
from evaltap.evaluator.pipeline.maintenance.why import explained, why
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
        complete = True
        for eval_id, answer in answers:
            before = eval_id and f"{eval_id}: "
            for metric in answer.metrics:
                reason = " ".join(readable(metric.reason).split())
                line = f"{metric.metric_name}: {metric.status}{': ' if reason else ''}{reason}"
                print(visible(f"{before}{line}"))
            for note in answer.notes:
                print(visible(f"{before}{note}"))
            complete = complete and answer.complete
    return 0 if complete else 3
