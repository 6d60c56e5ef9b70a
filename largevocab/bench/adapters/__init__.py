"""Adapters for other packages, as entrants and as examples of `bench.adapter`.

`torch_networks` and `tensorflow_networks` have the networks of the tasks.
`torch_adaptive` and `tensorflow_sampled` each have an output layer over any of these
networks. `ranks` converts labels to the form that they take. Nothing else needs either
package. An adapter imports its package when it is made.
"""
