"""Adapters for other packages, as entrants and as examples of `bench.adapter`.

`torch_networks` and `tensorflow_networks` have the networks of the tasks,
`torch_adaptive` and `tensorflow_sampled` an output layer over any of them, and `ranks`
the labels as these take them. Neither package is needed by anything else; an adapter
imports its own when it is made.
"""
