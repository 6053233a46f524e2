"""The checker is independent: a mistake of the product cannot be a mistake of the checker."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["checker.py", "evidence.py"])
def test_the_checker_imports_nothing_of_the_product(name: str) -> None:
    tree = ast.parse((HERE / name).read_text("utf-8"))

    modules = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert modules
    assert not [module for module in modules if module.split(".")[0] == "evaltap"]
