#!/usr/bin/env bash
# What ./redline does on machines with and without a GPU, with programs that stand in for CMake, ninja, nvidia-smi and the
# fetching of NVIDIA's packages: first_build_test.sh <repository>. Nothing is built or downloaded.
# shellcheck disable=SC2016,SC2128
set -euo pipefail
repository=$(readlink -f -- "$1")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/clone/cmake" "$place/clone/src" "$place/bin"
cp "$repository/redline" "$place/clone/"
cp "$repository/cmake/packages.txt" "$place/clone/cmake/"
touch "$place/clone/CMakeLists.txt" "$place/clone/CMakePresets.json"

script() {
  printf '#!/bin/sh\n%s\n' "$2" >"$1"
  chmod +x "$1"
}
script "$place/bin/cmake" 'echo "$@" >>"$PLACE/cmake-calls"'
# Thirty files, then a program that says its arguments.
script "$place/bin/ninja" 'for i in $(seq 30); do echo "[$i/30] Building $i"; done
case " $* " in *" redline "*) printf "#!/bin/sh\necho ran \"\$@\"\n" >"$2/redline"; chmod +x "$2/redline" ;; esac'
script "$place/bin/nvidia-smi" 'if [ "$1" = -L ]; then [ -n "$CAPABILITY" ]; else echo "$CAPABILITY"; fi'
script "$place/clone/cmake/cuda-toolkit" 'echo "$@" >>"$PLACE/fetch-calls"
if [ -n "$FETCH_FAILS" ]; then echo "no network" >&2; exit 1; fi
echo "-DCMAKE_CUDA_COMPILER=$1/nvcc -DCUDAToolkit_ROOT=$1"'

# run <capability> [variables...]: a first build; what it says goes to $place/said, what it passes on to $place/cmake-calls.
run() {
  local capability=$1
  shift
  rm -rf "$place/clone/build" "$place/cmake-calls" "$place/fetch-calls"
  env "$@" PLACE="$place" CAPABILITY="$capability" PATH="$place/bin:$PATH" REDLINE_PACKAGES=skip \
    "$place/clone/redline" demo >"$place/out" 2>"$place/said" </dev/null || { cat "$place/said"; echo "failed: $*"; exit 1; }
  grep -qx 'ran demo' "$place/out" || { echo "the program did not run"; exit 1; }
}
expect() { grep -qE -- "$2" "$place/$1" || { echo "line $BASH_LINENO: $1 lacks: $2"; cat "$place/$1"; exit 1; }; }
expect_no() { if [ -e "$place/$1" ] && grep -qE -- "$2" "$place/$1"; then echo "line $BASH_LINENO: $1 has: $2"; exit 1; fi; }

if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
  run ''
  expect cmake-calls '-DREDLINE_CUDA=OFF'
  expect_no said GPU
fi
expect_progress() {
  expect said 'building: up to [0-9]+ minutes on [0-9]+ cores'
  expect said '^redline: building, 50% \(15 of 30\)$'
}

run 7.5 REDLINE_CUDA=fetch FETCH_FAILS=
expect said "taking CUDA 13 and cuDNN 9 from NVIDIA's Python packages, about 2.5 GB in .*/build/cuda-toolkit; REDLINE_CUDA=skip leaves the GPU out"
expect fetch-calls '/build/cuda-toolkit --fetch$'
expect cmake-calls '-DREDLINE_CUDA=ON -DCMAKE_CUDA_COMPILER=.*/build/cuda-toolkit/nvcc .*-DCMAKE_CUDA_ARCHITECTURES=native'
expect_progress

run 9.0 REDLINE_CUDA=skip
expect cmake-calls '-DREDLINE_CUDA=OFF'
expect_no said GPU
expect_no fetch-calls .

run 7.0 REDLINE_CUDA=fetch
expect said 'the GPU will not be used: CUDA 13 serves compute capability 7.5'
expect cmake-calls '-DREDLINE_CUDA=OFF'
expect_no fetch-calls .

# One of two GPUs is enough.
run $'7.0\n8.9' REDLINE_CUDA=fetch
expect cmake-calls '-DREDLINE_CUDA=ON'

run 8.0 REDLINE_CUDA=fetch FETCH_FAILS=1
expect said '^no network$'
expect said "the GPU will not be used: NVIDIA's packages cannot be installed"
expect cmake-calls '-DREDLINE_CUDA=OFF'

# A clone in a folder with a space, called from elsewhere through a link; the second call does not build.
rm -rf "$place/clone/build"
mv "$place/clone" "$place/my clone"
ln -s "my clone/redline" "$place/link"
for built in yes no; do
  (cd / && env PLACE="$place" PATH="$place/bin:$PATH" REDLINE_PACKAGES=skip REDLINE_CUDA=skip "$place/link" 'two words') \
    >"$place/out" 2>"$place/said" </dev/null
  expect out '^ran two words$'
  if [ "$built" = yes ]; then expect said '^redline: building, 50%'; else expect_no said .; fi
done

# Somebody else's clone: its program runs, until its source changes.
other() {
  local -a as=()
  if [ "$(id -u)" -eq 0 ]; then as=(setpriv --reuid 65534 --regid 65534 --clear-groups); fi
  chmod a-w "$place/my clone/build/release"
  code=0
  "${as[@]}" env PLACE="$place" PATH="$place/bin:$PATH" REDLINE_PACKAGES=skip REDLINE_CUDA=skip "$place/my clone/redline" demo \
    >"$place/out" 2>"$place/said" </dev/null || code=$?
  chmod u+w "$place/my clone/build/release"
}
chmod 755 "$place"
other
expect out '^ran demo$'
touch "$place/my clone/src/new.cpp"
other
expect said '^redline: error: the source changed since the program was built, and you cannot write to .*/my clone/build/release; use a clone of your own'
[ "$code" -eq 74 ] || { echo "code $code instead of 74"; exit 1; }
echo "all as expected"
