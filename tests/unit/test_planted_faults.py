"""The faults that `python -m tests.planted_faults` plants are about code that is there."""

from __future__ import annotations

import pytest

from tests.planted_faults import FAULTS, PACKAGE, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_when_its_file_is_read_has_its_text_there_once(fault: Fault) -> None:
    text = (ROOT / PACKAGE / fault.file).read_text("utf-8")

    assert text.count(fault.right) == 1
    assert fault.wrong != fault.right
