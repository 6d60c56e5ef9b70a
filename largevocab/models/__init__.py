"""Networks from looked-up input rows to the last hidden activation."""

from largevocab.models.lstm import LSTM

MODELS = {"lstm": LSTM}
