"""Networks from input rows or features to the last hidden activation."""

from largevocab.models.bag import Bag
from largevocab.models.linear import Linear
from largevocab.models.lstm import LSTM
from largevocab.models.mlp import MLP
from largevocab.models.ngram import NGram

MODELS = {"bag": Bag, "linear": Linear, "lstm": LSTM, "mlp": MLP, "ngram": NGram}
