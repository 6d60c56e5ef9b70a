import itertools

import numpy as np
import pytest

from largevocab.heads.d_softmax import slice_widths


@pytest.mark.parametrize("widths", [(200, 50, 12, 3, 1), (8, 8, 8), (9, 8, 1, 1), (5,)])
def test_slices_share_the_columns(widths):
  for dim in (len(widths), 7, 200, 257):
    slices = slice_widths(dim, widths)
    share = dim * np.array(widths) / sum(widths)
    assert sum(slices) == dim
    assert min(slices) >= 1
    assert all(a >= b for a, b in itertools.pairwise(slices))
    assert (np.array(slices) <= np.maximum(np.ceil(share), 1)).all()


def test_too_few_columns_are_refused():
  with pytest.raises(ValueError, match="3 parts cannot share the 2 columns"):
    slice_widths(2, (4, 2, 1))
