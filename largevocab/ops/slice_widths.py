"""Disjoint slices of the activations, one for each part of the classes."""


def slice_widths(dim: int, widths: tuple[int, ...]) -> tuple[int, ...]:
  """Widths in proportion to the given ones, each at least 1, that sum to `dim`.

  Each part has one column; the others go one by one to the part that is farthest below
  its share.

  Args:
    dim: D.
    widths: of the parts, of which only the proportions matter.

  Raises:
    ValueError: there are more parts than columns.

  >>> slice_widths(256, (256, 64, 16)), slice_widths(5, (8, 8, 8))
  ((195, 49, 12), (2, 2, 1))
  """
  if len(widths) > dim:
    raise ValueError(f"{len(widths)} parts for {dim} columns")
  total = sum(widths)
  slices = [1] * len(widths)
  for _ in range(dim - len(widths)):
    missing = [dim * w / total - s for w, s in zip(widths, slices, strict=True)]
    slices[missing.index(max(missing))] += 1
  return tuple(slices)
