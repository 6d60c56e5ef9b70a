"""Training with very large output spaces, in JAX.

Shape letters. The part of an array's name after the last underscore has one letter per
axis (`h_ND`, `log_q_NM`):

  B batch              T time               N = B * T examples
  P true classes per example                E embedding width
  D width of h and of a class row           V classes
  M samples            S exactly summed     R touched rows
  K blocks, nodes, clusters, strata         L hash tables
  C code bits          F features
"""

__version__ = "0.1.0"
