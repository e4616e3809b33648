"""Which patterns go to pandas hangs on its version: some hand them to pyarrow's engine."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from persfl import column_checks, number_marks
from persfl.fitting import date_columns, row_columns
from persfl.sources import number_units

PATTERNS = [
    value
    for module in (number_units, number_marks, column_checks, date_columns, row_columns)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pyarrow_reads_every_pattern_for_columns(pattern):
    pc.match_substring_regex(pa.array(["83.9 %"]), pattern=pattern)


def test_signs_behind_numbers_are_units_by_the_engine_of_pyarrow():
    cells = pa.array(["5 °C", "3 €", "12 \u2030", "7 u7"])
    whole = f"^(?:{number_units._CELL})$"
    found = pc.match_substring_regex(cells, pattern=whole)
    assert found.to_pylist() == [True, True, True, False]
