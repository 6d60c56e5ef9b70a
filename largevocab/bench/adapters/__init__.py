"""Adapters for other packages, as entrants and as examples of `bench.adapter`.

Neither package is needed by anything else; an adapter imports its own when it is made.
"""
