"""When statistics are rebuilt."""


def is_refresh(step: int, every: int, growth: float = 1.0) -> bool:
  """Whether to refresh after this many steps.

  After `every`, and then after gaps that grow: gap k is every * growth^k steps long.
  Before the first of them also at powers of two, since a model changes fastest at the
  beginning. With `every` = 0 never.

  >>> [step for step in range(1, 35) if is_refresh(step, 10)]
  [1, 2, 4, 8, 10, 20, 30]
  >>> [step for step in range(1, 100) if is_refresh(step, 10, growth=2.0)]
  [1, 2, 4, 8, 10, 30, 70]

  Source: paper 002 section 3.3 (an update period that grows exponentially).
  """
  if not every:
    return False
  if step < every:
    return step.bit_count() == 1
  if growth == 1:
    return step % every == 0
  at, gap = every, every * growth
  while at < step:
    at, gap = at + round(gap), gap * growth
  return at == step
