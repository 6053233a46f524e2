"""The difference of two eval sets on the console."""

from evaltap.evaluator.cases.evalsets.content import user_texts
from evaltap.evaluator.cases.evalsets.difference import Difference, shown
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.text import counted

SHOWN_FIELDS = 12


def print_difference(found: Difference) -> None:
    def line(text: str) -> None:
        print(visible(text))

    for sign, cases in (("-", found.removed), ("+", found.added)):
        for case in cases:
            line(f"{sign} {case['evalId']}  {shown(' / '.join(user_texts(case)))[:100]}")
    for before, after in found.renamed:
        line(f"> {before} is {after} now")
    for change in found.changed:
        line(f"~ {change.eval_id}")
        for field in change.fields[:SHOWN_FIELDS]:
            line(f"    {field.place}")
            if field.before is not None:
                line(f"    - {shown(field.before)}")
            if field.after is not None:
                line(f"    + {shown(field.after)}")
        if len(change.fields) > SHOWN_FIELDS:
            line(f"    ... {len(change.fields) - SHOWN_FIELDS:,} more fields (--json lists all)")
    counts = [
        f"{len(cases):,} {name}"
        for name, cases in (
            ("added", found.added),
            ("removed", found.removed),
            ("changed", found.changed),
            ("renamed", found.renamed),
        )
        if cases
    ]
    print(f"{', '.join(counts) or 'no difference'}; {counted(found.same, 'case')} the same")
