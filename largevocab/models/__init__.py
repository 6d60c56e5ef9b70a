"""Networks, which map input rows or features to the last hidden activation."""

from largevocab.models.bag import Bag
from largevocab.models.gru import GRU
from largevocab.models.linear import Linear
from largevocab.models.lstm import LSTM
from largevocab.models.mlp import MLP
from largevocab.models.ngram import NGram
from largevocab.models.transformer import Transformer

MODELS = {
  "bag": Bag,
  "gru": GRU,
  "linear": Linear,
  "lstm": LSTM,
  "mlp": MLP,
  "ngram": NGram,
  "transformer": Transformer,
}
