"""The command line of `tubeq enqueue` and `jobs/enqueue.py`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from tubeq_spark.cli.exit_codes import EPILOG
from tubeq_spark.jobs.producer.source import FORMATS, Source
from tubeq_spark.jobs.producer.tasks import OPTIONS, Tasks
from tubeq_spark.jobs.program.arguments import add_queue_options
from tubeq_spark.jobs.program.running import run
from tubeq_spark.programs import BadUseError, ExitCode, Stop, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tubeq_spark import PutResult, Queue, Tube

PROGRAM = "enqueue.py"


def _parser(program: str) -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=program,
        description="Put the rows of JSON lines, CSV, Parquet, or any table into a tube: all in one "
        "commit, or none. Expressions are Spark's SQL over the columns of a row.",
        epilog=f"{EPILOG} A signal ends the program after a put that has begun.",
    )
    add = parse.add_argument
    add("source", metavar="SOURCE", help="a path or URI (files, a folder), or a table's name")
    add_queue_options(parse)
    add("--tube", required=True, help="where to put them")
    add("--create", metavar="TYPE", help="create the tube, of this type, if there is none")
    add("--format", choices=FORMATS, help="of the source (by its suffix, else Delta or a table)")
    add(
        "--option",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="of Spark's reader, such as sep=; or header=false; repeat it",
    )
    add("--key", help="identity of this put: repeated with the same key it adds nothing")
    add("--where", metavar="EXPR", help="which rows (all)")
    # A task has one payload.
    add_payload = parse.add_mutually_exclusive_group().add_argument
    add_payload(
        "--select",
        action="append",
        default=[],
        metavar="EXPR",
        help="a field of the payload, such as url or 'depth + 1 AS depth'; repeat it (all columns; "
        "of JSON lines: the line as it is)",
    )
    add_payload("--data", metavar="EXPR", help="the payload as one value, instead of --select")
    add_payload("--data-json", metavar="EXPR", help="the payload as text that is JSON already")
    for name in OPTIONS:
        add(f"--{name}", metavar="EXPR", help=f"the task's {name}")
    parse.set_defaults(program=program)
    return parse


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        msg = "must be NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    return name, value


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser(program).parse_args(argv)
    work = partial(_enqueue, arguments)
    return run(arguments, work, create=arguments.create is not None)


def _enqueue(arguments: argparse.Namespace, spark: SparkSession, queue: Queue) -> int:
    source = Source(arguments.source, arguments.format, dict(arguments.option))
    tasks = Tasks(
        where=arguments.where,
        select=arguments.select,
        data=arguments.data,
        data_json=arguments.data_json,
        options={name: getattr(arguments, name) for name in OPTIONS},
    )
    rows = source.read(spark, fields=tasks.need_fields)
    if arguments.create is None:
        tube = queue.tube(arguments.tube)
    else:
        if arguments.tube not in queue:
            tasks.of(rows, typed=False)  # What cannot be put creates no tube.
        tube = queue.create_tube(arguments.tube, arguments.create, if_not_exists=True)
    typed = tube.options.schema is not None
    if typed and not tasks.need_fields:
        rows = source.read(spark, fields=True)
    with Stop(lambda _: note(arguments.program, "finishing the put; once more to stop at once")):
        try:
            result = tube.put_df(tasks.of(rows, typed=typed), key=arguments.key)
        except Exception as error:
            refused = source.bad_row(error)
            if refused is None:
                raise
            raise BadUseError(refused) from error
    return _told(tube, result, arguments.key)


def _told(tube: Tube, result: PutResult, key: str | None) -> int:
    if result.count:
        ids = f"{result.first_task_id} to {result.last_task_id}"
        sys.stdout.write(f"put {result.count:,} tasks into {tube.name}: {ids}\n")
        return ExitCode.DONE
    reasons = ["there are no rows"]
    if key is not None:
        reasons.append(f"the key {key!r} was used before")
    full = tube.options.capacity is not None
    if full:
        reasons.append("there is no room for all of them")
    sys.stdout.write(f"put nothing into {tube.name}: {' or '.join(reasons)}\n")
    return ExitCode.NO if full else ExitCode.DONE
