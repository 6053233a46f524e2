"""The keyboard shortcuts of the page: one list, used by the script and shown in the dialog.

A key clicks the button or follows the link that is marked with its action, so a key only works if its control
exists.
"""

from typing import Final, NamedTuple


class Key(NamedTuple):
    """One key, or two keys pressed in sequence."""

    keys: str
    action: str
    """The `data-action` of the element."""
    words: str
    scope: str


KEYS: Final = (
    Key("/", "search", "go to the search", "everywhere"),
    Key("?", "keys", "show the keys", "everywhere"),
    Key("g o", "go-overview", "go to the overview", "everywhere"),
    Key("g c", "go-cases", "go to the cases", "everywhere"),
    Key("g r", "go-runs", "go to the runs", "everywhere"),
    Key("g u", "go-review", "go to the review", "everywhere"),
    Key("g b", "go-basket", "go to the basket", "everywhere"),
    Key("g v", "go-coverage", "go to the coverage", "everywhere"),
    Key("g j", "go-judges", "go to the judges", "everywhere"),
    Key("g d", "go-delivery", "go to the delivery", "everywhere"),
    Key("g a", "go-alerts", "go to the alerts", "everywhere"),
    Key(".", "pause", "pause or resume", "everywhere"),
    Key("y", "copy-link", "copy the link to this page", "everywhere"),
    Key("j", "next-row", "next row", "lists"),
    Key("k", "previous-row", "previous row", "lists"),
    Key("Enter", "", "open the row", "lists"),
    Key("x", "pick-row", "pick or unpick the row", "lists"),
    Key("b", "to-basket", "add the picked cases, or this case, to the basket", "lists"),
    Key("n", "next-page", "next page, or next case", "lists"),
    Key("p", "previous-page", "previous page, or previous case", "lists"),
    Key("Escape", "back", "back to the list", "case"),
    Key("]", "next-difference", "next difference", "case"),
    Key("[", "previous-difference", "previous difference", "case"),
    Key("t", "next-turn", "next turn", "case"),
    Key("T", "previous-turn", "previous turn", "case"),
    Key("d", "fold", "show or fold equal arguments", "case"),
    Key("r", "to-review", "queue the picked cases, or this case, for review", "case"),
    Key("=", "use-as-expected", "use as expected", "case"),
    Key("1", "approve", "approve", "review"),
    Key("2", "reject", "reject", "review"),
    Key("3", "skip", "skip", "review"),
    Key("a", "approve", "approve", "review"),
    Key("x", "reject", "reject", "review"),
    Key("l", "labels", "write labels", "review"),
    Key("e", "edit-tools", "edit the tools", "review"),
    Key("w", "edit-answer", "edit the answer", "review"),
    Key("c", "comment", "write a comment", "review"),
    Key("s", "skip", "skip", "review"),
    Key("u", "undo", "undo the last decision", "review"),
)
"""PageAnswer by scope, in this order."""
