"""What the texts of failed requests to object stores tell of a commit."""

from __future__ import annotations

import pytest
from deltalake.exceptions import CommitFailedError

from tubeq_spark.storage.native import errors

ARROW = "\n          \x1b[31m↳\x1b[0m "
LOG = "http://127.0.0.1:33729/bucket/t/_delta_log"
COMMIT = f"Error performing PUT {LOG}/00000000000000000003.json in 4.1ms - "
RESET = f"HTTP error{ARROW}error sending request{ARROW}client error (SendRequest)"
REFUSED = f"HTTP error{ARROW}error sending request{ARROW}client error (Connect)"
DATA = "Error performing PUT http://127.0.0.1:33729/bucket/t/part-0.parquet in 4.2ms - HTTP error"
LISTING = (
    "Error performing GET http://127.0.0.1:33729/bucket?list-type=2&prefix=t%2F_delta_log%2F in 1ms"
)
#: With a SAS token of Azure's.
HIDDEN = "Error performing PUT REDACTED in 4.1ms - "
#: On Google Cloud Storage.
ENCODED = COMMIT.replace("_", "%5F").replace(".json", "%2Ejson")


def status(number: str) -> str:
    return f"Server returned non-2xx status code{ARROW}{number}{ARROW}<Error/>"


@pytest.mark.parametrize(
    ("error", "passes", "is_out"),
    [
        (OSError(f"Generic S3 error{ARROW}{COMMIT}{RESET}"), True, True),
        (OSError(f"Generic S3 error{ARROW}{COMMIT}{REFUSED}"), True, False),
        (OSError(f"Generic S3 error{ARROW}{COMMIT}{status('500 Internal')}"), True, True),
        (OSError(f"Generic S3 error{ARROW}{COMMIT}{status('429 Too Many')}"), True, True),
        (OSError(f"Generic S3 error{ARROW}{COMMIT}{status('403 Forbidden')}"), False, False),
        (OSError(f"Failed to parse: {COMMIT}non-2xx status code: 403 Forbidden"), False, False),
        (OSError(f"Failed to parse parquet: External: Generic S3 error: {DATA}"), True, False),
        (OSError(f"Generic S3 error: {LISTING} - HTTP error"), True, True),
        (OSError(f"Generic S3 error{ARROW}{DATA.replace('PUT', 'POST')}"), True, False),
        (OSError(f"Generic S3 error{ARROW}{DATA.replace('PUT', 'GET')}"), True, False),
        (OSError(f"Generic S3 error{ARROW}{COMMIT}HTTP error{ARROW}builder error"), False, False),
        (OSError(f"{COMMIT}{RESET}".replace("3.json", "3.checkpoint.parquet")), True, True),
        (OSError("Generic HDFS error: something else"), False, True),
        (OSError(f"Generic MicrosoftAzure error{ARROW}{HIDDEN}{RESET}"), True, True),
        (OSError(f"Generic MicrosoftAzure error{ARROW}{HIDDEN}{REFUSED}"), True, False),
        (OSError(f"{HIDDEN}{RESET}".replace("PUT", "GET")), True, True),
        (OSError(f"Generic GCS error{ARROW}{ENCODED}{RESET}"), True, True),
        (OSError(f"Generic GCS error{ARROW}{ENCODED}{REFUSED}"), True, False),
        (OSError(f"{ENCODED}{RESET}".replace("3%2E", "4%2E")), True, True),
        (CommitFailedError("Failed to commit transaction: 0"), False, False),
    ],
)
def test_error_of_a_commit_says_whether_it_may_pass_and_whether_the_commit_may_be_sent(
    error: Exception, passes: bool, is_out: bool
) -> None:
    assert errors.may_pass(error) is passes
    assert errors.may_have_sent(error, 3) is is_out


@pytest.mark.parametrize(
    ("text", "is_under_way"),
    [
        (f"{COMMIT}{RESET}", True),
        (f"{COMMIT}{status('500 Internal')}", True),
        (f"{COMMIT}{REFUSED}", False),
        (f"{COMMIT}{status('403 Forbidden')}", False),
        (f"Generic S3 error: {LISTING} - HTTP error", False),
        (f"{COMMIT}{RESET}".replace("3.json", "3.checkpoint.parquet"), False),
        (f"Generic S3 error: {DATA}", False),
        (f"{HIDDEN}{RESET}", True),
        (f"{ENCODED}{RESET}", True),
        (f"{ENCODED}{RESET}".replace("3%2E", "4%2E"), False),
        (f"{HIDDEN}{RESET}".replace("PUT", "GET"), False),
        ("Generic HDFS error: something else", True),
    ],
)
def test_error_of_a_commit_that_is_not_there_says_whether_it_may_still_come(
    text: str, is_under_way: bool
) -> None:
    assert errors.may_be_under_way(OSError(text), 3) is is_under_way
