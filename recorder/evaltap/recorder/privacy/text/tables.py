"""Find the secret columns of tables in text: CSV, Markdown, database output."""

import re
from collections.abc import Iterable, Iterator

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.secret_names import Name, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import is_placeholder, is_token
from evaltap.recorder.privacy.text.values import is_mixed

_RE = patterns("tables")

Cell = tuple[Name, int, int]
"""What a column's name implies, and the span of a value in it."""

NUMBER_COLUMNS = ("phone", "mobil", "msisdn", "card", "tel", "fax", "cell", "contact")
"""Parts of the names of columns with phone and card numbers."""

_Row = tuple[int, str, list[tuple[int, int]]]
"""The offset of a line, the line, and the spans of its cells."""
_ALIGNED = "  "
_SEPARATORS = ("|", "\t", ",", ";", _ALIGNED)
_KINDS = (Name.SECRET, Name.TOKEN, Name.PHONE, Name.CARD)
_LONGEST_HEAD = 2_000
_MOST_COLUMNS = 64


def in_tables(text: str, names: Iterable[int]) -> Iterator[Cell]:
    """Yield the cells of a text's tables in columns of a secret or a number.

    `names` are offsets of such names, in lines that may be headers.
    """
    heads = sorted({text.rfind("\n", 0, place) + 1 for place in names} | set(_heads(text)))
    done = 0
    for head in heads:
        if head < done:
            continue
        end = text.find("\n", head) + 1
        if not end:
            return
        if _is_below_row(text, head, end):
            continue
        line = text[head:end]
        # Of Jira's `||user||password||` each cell counts once.
        separator, columns, width = _head(line.replace("||", "|") if line[:2] == "||" else line)
        done = end
        if not columns:
            continue
        if rows := list(_rows(text, end, separator, width)):
            done = rows[-1][0] + len(rows[-1][1])
        for index, kind in columns.items():
            yield from _column(kind, index, rows, is_loose=separator == _ALIGNED or ", " in line)


def _is_below_row(text: str, head: int, end: int) -> bool:
    """Return whether a line is a row of a table that began above: the line before has as many bars."""
    bars = text.count("|", head, end)
    above = text[text.rfind("\n", 0, max(head - 1, 0)) + 1 : head]
    if not bars or not above:
        return False
    is_row = above.count("|") == bars or text[head] == above[0] == "|"
    return is_row or _RE.psql_rule.match(above) is not None


def _rows(text: str, at: int, separator: str, width: int) -> Iterator[_Row]:
    """Yield the lines with as many cells as the header, or one more: the number of the row."""
    while at < len(text):
        stop = text.find("\n", at) + 1 or len(text)
        line = text[at:stop]
        if _RE.rule.fullmatch(line) is None:
            cells = _cells(line, separator)
            shift = len(cells) - width
            if shift and not (shift == 1 and separator == _ALIGNED and _RE.index.match(line)):
                return
            yield at, line, cells[shift:]
        at = stop


def _column(kind: Name, index: int, rows: list[_Row], *, is_loose: bool) -> Iterator[Cell]:
    """Yield the cells of a column; of what may be prose, if one of them is more than a word."""
    if is_loose and not any(is_mixed(line[slice(*cells[index])]) for _, line, cells in rows):
        return
    for offset, line, cells in rows:
        yield from _cell(kind, line, offset, cells[index])


def _heads(text: str) -> Iterator[int]:
    """Yield the starts of lines that look like a header, whatever the names in them."""
    if _RE.first_line.match(text) is not None:
        yield 0
    if "--" in text or "=+" in text:
        for rule in _RE.rule_line.finditer(text):
            yield text.rfind("\n", 0, rule.start()) + 1


def may_begin_table(text: str) -> bool:
    """Return whether a line looks like a header."""
    return next(_heads(text), None) is not None


def in_html_tables(text: str) -> Iterator[Cell]:
    """Yield the cells of HTML tables in columns of a secret or a number."""
    at = 0
    text = _RE.inline.sub(lambda tag: " " * len(tag[0]), text)
    while (head := _RE.head_row.search(text, at)) is not None:
        names = [cell[1].strip() for cell in _RE.html_cell.finditer(head[1])]
        kinds = {i: kind for i, name in enumerate(names) if (kind := kind_of_name(name)) in _KINDS}
        at = head.end()
        while kinds and (row := _RE.data_row.match(text, at)) is not None:
            places = [_trimmed(row[1], *cell.span(1)) for cell in _RE.html_cell.finditer(row[1])]
            for index, kind in kinds.items() if len(places) == len(names) else ():
                yield from _cell(kind, row[1], row.start(1), places[index])
            at = row.end()


def in_inserts(text: str) -> Iterator[Cell]:
    """Yield the values of SQL's `INSERT INTO t (name, password) VALUES (...), (...)`."""
    for insert in _RE.insert.finditer(text):
        names = [text[insert.start(1) + a : insert.start(1) + b] for a, b in _cells(insert[1], ",")]
        kinds = {i: kind for i, name in enumerate(names) if (kind := kind_of_name(name)) in _KINDS}
        at = insert.end()
        while kinds and (row := _RE.row.match(text, at)) is not None:
            places = [_trimmed(row[1], *cell.span()) for cell in _RE.sql_value.finditer(row[1])]
            for index, kind in kinds.items() if len(places) == len(names) else ():
                if row[1][places[index][0] : places[index][0] + 1] not in _PARAMETERS:
                    yield from _cell(kind, row[1], row.start(1), places[index])
            at = row.end()


_PARAMETERS = (":", "@", "$", "?", "%")


def in_copies(text: str) -> Iterator[Cell]:
    """Yield the values of PostgreSQL's `COPY t (name, password) FROM stdin;`, up to its `\\.`."""
    at = 0
    while (copy := _RE.copy.search(text, at)) is not None:
        names = [name.strip(' "') for name in copy[1].split(",")]
        kinds = {i: kind for i, name in enumerate(names) if (kind := kind_of_name(name)) in _KINDS}
        at = copy.end()
        # What was read as a row is not searched for another table: the time stays linear.
        while kinds and at < len(text) and not text.startswith("\\.", at):
            stop = text.find("\n", at) + 1 or len(text)
            line = text[at:stop]
            cells = _cells(line, "\t")
            if len(cells) != len(names):
                break
            for index, kind in kinds.items():
                yield from _cell(kind, line, at, cells[index])
            at = stop


def _head(line: str) -> tuple[str, dict[int, Name], int]:
    """Return the separator of a header's cells, and its significant columns."""
    if len(line) > _LONGEST_HEAD:
        return "", {}, 0
    for separator in _SEPARATORS:
        if separator not in line.strip():
            continue
        cells = _cells(line, separator)
        names = [line[a:b] for a, b in cells]
        if len(names) > _MOST_COLUMNS or not all(len(name) <= 40 for name in names):
            continue
        if separator == "," and ", " in line and any(map(_RE.prose.match, names)):
            continue
        if separator == _ALIGNED and not all(map(_RE.column.fullmatch, names)):
            continue
        kinds = {i: kind for i, name in enumerate(names) if (kind := kind_of_name(name)) in _KINDS}
        if kinds and not any(any(map(str.isdigit, name)) and "=" in name for name in names):
            return separator, kinds, len(cells)
    return "", {}, 0


def _cells(line: str, separator: str) -> list[tuple[int, int]]:
    """Return the spans of a line's cells, without surrounding spaces and quotes."""
    if separator == _ALIGNED:
        return [match.span() for match in _RE.aligned_cell.finditer(line)]
    parts = _QUOTED[separator].finditer(line) if '"' in line else None
    if parts is None:
        found, at = [], 0
        for part in line.split(separator):
            found.append((at, at + len(part)))
            at += len(part) + 1
    else:
        found = [match.span(1) for match in parts]
    return [_trimmed(line, start, end) for start, end in found]


_QUOTED = {
    one: re.compile(
        rf"(?:^|(?<={re.escape(one)}))(\s*+\"[^\"]*+\"\s*+|[^{re.escape(one)}\"]*+)(?={re.escape(one)}|$)"
    )
    for one in _SEPARATORS
    if one != _ALIGNED
}


def _trimmed(line: str, start: int, end: int) -> tuple[int, int]:
    cell = line[start:end]
    start += len(cell) - len(cell.lstrip(" \t\r\n\"'`*"))
    return start, max(start, end - len(cell) + len(cell.rstrip(" \t\r\n\"'`*")))


def _cell(kind: Name, line: str, offset: int, place: tuple[int, int]) -> Iterator[Cell]:
    value = line[slice(*place)]
    if len(value) < 3 or is_placeholder(value) or _RE.rule.fullmatch(value):
        return
    if _RE.constant.fullmatch(value) and kind_of_name(value) in (Name.SECRET, Name.TOKEN):
        return  # a list of names
    if kind is not Name.TOKEN or is_token(value):
        yield kind, offset + place[0], offset + place[1]
