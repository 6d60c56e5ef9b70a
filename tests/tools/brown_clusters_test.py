"""Clusters, from the command line to the head that reads them."""

import pathlib

import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Hierarchical
from largevocab.tools import brown_clusters

REPOSITORY = pathlib.Path(brown_clusters.__file__).parents[2]
CONFIG = f"--config={REPOSITORY}/configs/enwiki8.py"


def test_head_reads_the_clusters_of_the_file(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("LARGEVOCAB_CACHE", str(tmp_path / "cache"))
  text, out = tmp_path / "text", tmp_path / "new" / "clusters.npy"
  words = np.random.default_rng(0).zipf(1.3, 3000).clip(max=40)
  text.write_text(" ".join(f"w{word}" for word in words))
  given = [CONFIG, f"--config.data.train={text}", "--config.data.min_count=2"]
  brown_clusters.main([*given, f"--out={out}", "--num_clusters=5"])
  told = capsys.readouterr().out.splitlines()
  assert told[0].endswith(f"words: {out}")
  brown, *by_count = (float(line.split()[1]) for line in told[1:])
  assert len(by_count) == 3
  assert brown < min(by_count)
  cluster_V = np.load(out)
  assert cluster_V.dtype == np.int32
  assert cluster_V.max() < 5
  of_file_V = Hierarchical(clusters=str(out)).cluster_of(
    brown_clusters.Counts(np.ones(len(cluster_V), int))
  )
  np.testing.assert_array_equal(of_file_V, cluster_V)


def test_wrong_arguments_are_named():
  with pytest.raises(UserError, match=r"--out=x: .*\.npy"):
    brown_clusters.main([CONFIG, "--out=x"])
  with pytest.raises(UserError, match=r"config\.data\.tain.*did you mean 'train'"):
    brown_clusters.main([CONFIG, "--out=x.npy", "--config.data.tain=y"])


def test_output_file_is_checked_before_clustering(tmp_path, monkeypatch):
  monkeypatch.setattr(Hierarchical, "cluster_of", None)
  (tmp_path / "a.npy").mkdir()
  made = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  with pytest.raises(UserError, match=r"a\.npy is a directory: name a \.npy file"):
    brown_clusters.main([made, f"--out={tmp_path}/a.npy"])
  (tmp_path / "file").touch()
  with pytest.raises(OSError, match="file"):
    brown_clusters.main([made, f"--out={tmp_path}/file/a.npy"])
