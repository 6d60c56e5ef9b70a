#!/usr/bin/env bash
# Runs all that waits for a GPU, the most useful first, in calls of a few minutes:
#
#   scripts/on_gpu.sh --seconds 570 --work /tmp/work --out OUT --wheels wheels \
#     --ptb DIR_OF_PTB --text enwiki8.txt.xz --pairs SimLex-999.txt
#
# Repeat the same command to continue where the last call stopped, until it says that
# nothing is left. The parts are table 1 of Grave et al. 2017
# (experiments/adaptive_enwiki8), figures 2 to 4 of Blanc & Rendle 2018
# (kernel_bias_medium), 670,091 labels (xmlc_670k), the full softmax of Vincent et al.
# 2015, section 6 (lst_epochs), and speeds (gpu_speed, product_time, a cost model). The
# contract tests of heads and of samplers, without those marked `long`, come last,
# because they take long, too: if a call has too little time for all of one file, the
# next call starts this file again. A part that fails is not tried again in later calls
# until failed/PART in --work is removed.
#
#   --seconds N   time limit of a call; runs are asked to save a minute before its end
#   --work DIR    workdirs, caches and packages; keep it between calls
#   --out DIR     gets NAME.jsonl of each experiment and finished.tar.gz, both complete
#   --finished F  finished.tar.gz of a machine that is gone; its runs are not repeated
#   --wheels DIR  pure wheels of packages that this Python lacks, such as
#                 ml_collections, and of packages that are timed next to ours:
#                 liger-kernel, cut-cross-entropy
#   --jobs N      runs that share the GPU at a time, 1 by default; more slow each other
#                 down
#   --python P    Python of the machine, which must have jax with GPU support
#   --dry_run     print the commands, run none
#
# Status 0: nothing is left; 75: call it again; 1: only failed parts are left (see
# above).
set -uo pipefail

readonly SAVING=60 # seconds at the end for runs to save and results to be written
readonly LEAST=45  # minimum seconds that are worth a start
readonly SWEEPS=(adaptive_enwiki8 kernel_bias_medium xmlc_670k lst_epochs)
readonly SPEEDS=(gpu_speed product_time)
readonly BENCHMARKS=(
  chunked_full_softmax peers_optax deterministic_step
  spherical_step adaptive_rivals adaptive_search adaptive_step xmlc_step
  peers_softmax peers_sampled
)
readonly CONTRACTS=(samplers heads)
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
seconds=570 jobs=1 python=python3
work='' out='' finished='' wheels='' ptb='' text='' pairs='' dry_run=''
left='' failed='' # whether parts are left, or have failed

fail() {
  echo "on_gpu: $*" >&2
  exit 1
}

while (($#)); do
  case $1 in
    --dry_run) dry_run=yes ;;
    --seconds | --jobs | --python | --work | --out | --finished | --wheels | --ptb | \
      --text | --pairs)
      (($# > 1)) || fail "$1 has no value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    *) fail "$1 is not an argument; see the head of $0" ;;
  esac
  shift
done
for name in work out ptb text pairs; do
  [[ ${!name} ]] || fail "--$name is missing; see the head of $0"
done
for name in seconds jobs; do
  [[ ${!name} =~ ^[1-9][0-9]{0,5}$ ]] ||
    fail "--$name ${!name}: give a whole number from 1"
done
((seconds > SAVING + LEAST)) ||
  fail "--seconds $seconds: give more than $((SAVING + LEAST)); $SAVING are for saving"
for name in ptb text pairs finished wheels; do
  [[ ! ${!name} || -e ${!name} ]] || fail "--$name ${!name}: there is no such path"
done
# Commands run in the repository, so relative paths of the caller are made absolute.
for name in work out ptb text pairs finished wheels; do
  [[ ! ${!name} || ${!name} == /* ]] || printf -v "$name" %s "$PWD/${!name}"
done
[[ $python != */* || $python == /* ]] || python=$PWD/$python
cd -- "$root" || exit 1

export PYTHONPATH=$root:$work/site
export LARGEVOCAB_CACHE=$work/cache
export JAX_COMPILATION_CACHE_DIR=$work/jax_cache

prepare() {
  mkdir -p "$work/done" "$work/failed" "$work/runs" "$work/speeds" "$out" || exit 1
  if [[ $wheels && ! -e $work/site/installed ]]; then
    "$python" -m pip install --quiet --no-index --no-deps --upgrade \
      --find-links "$wheels" --target "$work/site" "$wheels"/*.whl &&
      touch "$work/site/installed" ||
      fail "the wheels in $wheels cannot be installed; see above"
  fi
  if [[ $finished ]]; then
    tar -xzf "$finished" -C "$work" --skip-old-files || fail "$finished is damaged"
  fi
}

# do_part NAME COMMAND...: runs a part, unless it is done or there is no time.
do_part() {
  local name=$1 time=$((seconds - SECONDS - SAVING)) status
  shift
  if [[ $dry_run ]]; then
    printf '%q ' "$@"
    echo
    return
  fi
  [[ ! -e $work/done/$name ]] || return 0
  if [[ -e $work/failed/$name ]]; then
    echo "on_gpu: $name has failed; to try again, remove $work/failed/$name" >&2
    failed=yes
    return
  fi
  if ((time < LEAST)); then
    echo "on_gpu: no time is left for $name"
    left=yes
    return
  fi
  echo "on_gpu: $name, $time seconds"
  timeout --signal=TERM --kill-after=$((SAVING / 2)) "$time" "$@"
  status=$?
  if ((status == 0)); then
    touch "$work/done/$name"
  elif ((SECONDS >= seconds - SAVING)); then
    left=yes
  else
    echo "on_gpu: $name failed with status $status" >&2
    touch "$work/failed/$name"
    failed=yes
  fi
}

# Each run that shares the GPU takes its share of the memory.
share() {
  XLA_PYTHON_CLIENT_MEM_FRACTION=$(awk "BEGIN { printf \"%.2f\", 0.9 / $1 }")
  export XLA_PYTHON_CLIENT_MEM_FRACTION
}

run_sweep() { # NAME ARGUMENTS...
  local name=$1 version
  version=$(cksum <"experiments/$1/sweep.py") # a changed sweep is another part
  shift
  do_part "$name-${version%% *}" "$python" scripts/run_sweep.py "experiments/$name/sweep.py" \
    --root "$work/runs/$name" "$@"
}

measure_speeds() {
  # One run at a time, with half of the memory for other libraries. Both sides round
  # products in the same way, or their answers would not be close enough to compare.
  share 2
  export JAX_DEFAULT_MATMUL_PRECISION=float32
  local name
  for name in "${BENCHMARKS[@]}"; do
    do_part "$name" "$python" -m benchmarks.bench --seconds 3 --only "$name" \
      --output "$work/speeds/gpu_speed.jsonl"
  done
  do_part product_time "$python" -m largevocab.tools.product_report \
    --output "$work/speeds/product_time.jsonl"
  do_part cost_model "$python" -m largevocab.tools.fit_cost_model \
    --out "$work/speeds/cost_model.json"
}

check_contracts() {
  local name
  for name in "${CONTRACTS[@]}"; do
    # Tests are named one by one, since a stopped run has no summary of failures.
    JAX_DEFAULT_MATMUL_PRECISION=float32 do_part "contracts_$name" "$python" -m pytest \
      -vv --tb=short -p no:cacheprovider "tests/$name/contract_test.py"
  done
}

# Makes a complete copy, or none.
copy() {
  cp "$1" "$2.new" && mv "$2.new" "$2" || failed=yes
}

# Saves everything that must not be lost when the machine is given back. Files are
# always complete, because they are made elsewhere and moved.
bring_home() {
  local name
  for name in "${SWEEPS[@]}"; do
    JAX_PLATFORMS=cpu "$python" scripts/run_sweep.py "experiments/$name/sweep.py" \
      --root "$work/runs/$name" --collect || failed=yes
  done
  for name in "${SPEEDS[@]}"; do
    [[ ! -e $work/speeds/$name.jsonl ]] || # rows of other devices stay
      JAX_PLATFORMS=cpu "$python" -c '
import pathlib, sys
from largevocab.tools.sweeps import records
new, whole = map(pathlib.Path, sys.argv[1:])
records.merge(whole, records.load(new))' \
        "$work/speeds/$name.jsonl" "experiments/$name/results.jsonl" || failed=yes
  done
  for name in "${SWEEPS[@]}" "${SPEEDS[@]}"; do
    [[ ! -e experiments/$name/results.jsonl ]] ||
      copy "experiments/$name/results.jsonl" "$out/$name.jsonl"
  done
  [[ ! -e $work/speeds/cost_model.json ]] ||
    copy "$work/speeds/cost_model.json" "$out/cost_model.json"
  (
    cd -- "$work" || exit 1
    find runs \( -name result.json -o -name diverged.json \) -printf '%h\0' | sort -zu |
      while IFS= read -r -d '' run; do
        find "$run" -maxdepth 1 \( -name '*.json' -o -name metrics.jsonl \) -print0
      done | tar -czf "$out/finished.tar.gz.new" done speeds --null --no-recursion -T - &&
      mv "$out/finished.tar.gz.new" "$out/finished.tar.gz"
  ) || failed=yes
}

[[ $dry_run ]] || prepare
share "$jobs"
run_sweep adaptive_enwiki8 --jobs "$jobs" --set "data.train=$text"
run_sweep kernel_bias_medium --jobs "$jobs" --set "data.path=$ptb"
share 1 # each of these runs has the GPU to itself
run_sweep xmlc_670k --jobs 1
run_sweep lst_epochs --index 9 --set "data.train=$text" --set "eval.word_pairs=$pairs"
measure_speeds
check_contracts
[[ ! $dry_run ]] || exit 0
bring_home
if [[ $left ]]; then
  echo "on_gpu: run the same command again to continue"
  exit 75
fi
[[ ! $failed ]] || exit 1
echo "on_gpu: nothing is left to do"
