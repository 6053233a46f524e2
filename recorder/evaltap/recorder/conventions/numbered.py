"""Lists flattened into numbered attributes: `prefix.0.role`, `prefix.0.tool_calls.1.id`."""

from collections.abc import Mapping

from evaltap.schemas.data import JsonObject


class Numbered:
    """One entry of a flattened list: its attributes by the name after its number."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def __bool__(self) -> bool:
        return bool(self._fields)

    def value(self, name: str) -> object:
        """Return the value of a field, or None."""
        return self._fields.get(name)

    def text(self, name: str) -> str | None:
        """Return a field if it is non-empty text, else None."""
        value = self._fields.get(name)
        return value if isinstance(value, str) and value else None

    def child(self, name: str) -> "Numbered":
        """Return the fields below `name.`."""
        start = f"{name}."
        return Numbered(
            {
                key[len(start) :]: value
                for key, value in self._fields.items()
                if key.startswith(start)
            }
        )

    def items(self, name: str) -> list["Numbered"]:
        """Return the entries of the list below `name.`, ordered by number."""
        return gather(self._fields, name)


def gather(attributes: Mapping[str, object], prefix: str) -> list[Numbered]:
    """Return the entries of the list at `prefix`, ordered by number; numbers may have gaps."""
    entries: dict[int, JsonObject] = {}
    start = f"{prefix}."
    for key, value in attributes.items():
        if key.startswith(start):
            number, _, name = key[len(start) :].partition(".")
            if number.isdigit() and name:
                entries.setdefault(int(number), {})[name] = value
    return [Numbered(entries[number]) for number in sorted(entries)]
