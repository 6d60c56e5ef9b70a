import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.softmax.chunks import class_chunk, even_chunks, ids_in_chunk


@pytest.mark.parametrize("total", [1, 2, 7, 10, 97])
@pytest.mark.parametrize("at_most", [-5, 0, 1, 2, 3, 7, 50, 1000])
def test_every_class_is_new_once_and_no_chunk_is_empty(total, at_most):
  chunks = even_chunks(total, at_most)
  assert chunks.size <= max(1, at_most)
  w_VD = jnp.arange(total)[:, None]
  seen = []
  for i in range(chunks.num):
    chunk = class_chunk(w_VD, jnp.int32(i), chunks.size)
    assert chunk.is_new_V.any()
    assert chunk.w_VD[0, 0] == chunk.start
    seen += np.asarray(chunk.w_VD[:, 0])[np.asarray(chunk.is_new_V)].tolist()
  assert seen == list(range(total))


def test_every_id_is_in_one_chunk():
  total = 7
  chunks = even_chunks(total, 3)
  w_VD, ids = jnp.arange(total)[:, None], jnp.arange(total + 1)
  found = np.zeros(total + 1, int)
  for i in range(chunks.num):
    chunk = class_chunk(w_VD, jnp.int32(i), chunks.size)
    local = np.asarray(ids_in_chunk(ids, chunk.start, chunk.is_new_V))
    inside = local < chunks.size
    found += inside
    np.testing.assert_array_equal(
      np.asarray(chunk.w_VD[:, 0])[local[inside]], ids[inside]
    )
  assert found.tolist() == [1] * total + [0]
