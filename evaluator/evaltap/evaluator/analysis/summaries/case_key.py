"""The key of a case in the summaries: a hash of its names."""

from typing import Final


def key_of_case(app_name: str, eval_set_id: str, eval_id: str) -> str:
    """Return SQL for the `case_key` of a case, of SQL for its names."""
    return f"md5_number_lower(concat_ws(chr(31), {app_name}, {eval_set_id}, {eval_id}))"


CASE_KEY: Final = key_of_case("app_name", "eval_set_id", "eval_id")
"""The `case_key` of a row that names a case."""
