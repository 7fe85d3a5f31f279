"""Writes a statement as Spark runs it: MERGE, UPDATE or DELETE."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.statement import Clause, Statement

__all__ = ["text_of"]


def text_of(statement: Statement) -> str:
    """The text of a statement; names of sources and the note are still in braces."""
    table = statement.table
    if statement.using:
        clauses = " ".join(map(_clause, statement.clauses))
        return f"MERGE INTO {table} t USING {statement.using} s ON {statement.where} {clauses}"
    (clause,) = statement.clauses
    if clause.sets is None:
        return f"DELETE FROM {table} t WHERE {statement.where}"
    return f"UPDATE {table} t SET {_assignments(clause.sets)} WHERE {statement.where}"


def _clause(clause: Clause) -> str:
    condition = f" AND {clause.when}" if clause.when else ""
    if clause.inserts:
        sets = clause.sets or {}
        return (
            f"WHEN NOT MATCHED{condition} THEN INSERT ({', '.join(sets)}) "
            f"VALUES ({', '.join(sets.values())})"
        )
    action = "DELETE" if clause.sets is None else f"UPDATE SET {_assignments(clause.sets)}"
    return f"WHEN MATCHED{condition} THEN {action}"


def _assignments(sets: Mapping[str, str]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in sets.items())
