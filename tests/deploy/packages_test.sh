#!/usr/bin/env bash
# What ./redline installs with each package manager of cmake/packages.txt, with programs that stand in for them:
# packages_test.sh <repository>. Nothing is installed, built or downloaded.
# shellcheck disable=SC2016,SC2128
set -euo pipefail
repository=$(readlink -f -- "$1")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/clone/cmake" "$place/clone/src"
cp "$repository/redline" "$place/clone/"
cp "$repository/cmake/packages.txt" "$place/clone/cmake/"
touch "$place/clone/CMakeLists.txt" "$place/clone/CMakePresets.json"

script() {
  printf '#!/bin/sh\n%s\n' "$2" >"$1"
  chmod +x "$1"
}
fail() {
  echo "line $BASH_LINENO: $*"
  cat "$place/said" 2>/dev/null
  exit 1
}

# A machine with the tools that every system has, and no package manager.
machine() {
  rm -rf "${place:?}/bin"
  mkdir "$place/bin"
  local tool
  for tool in awk basename bash cat chmod dirname echo env find flock grep head mkdir mv nproc printf readlink seq sh tail touch xargs; do
    ln -s "$(type -P "$tool")" "$place/bin/$tool"
  done
  script "$place/bin/cmake" ':'
  script "$place/bin/ninja" 'printf "#!/bin/sh\necho ran \"\$@\"\n" >"$2/redline"; chmod +x "$2/redline"'
  script "$place/bin/id" 'echo "${IDENTITY:-0}"'
}
# What is installed is a list of names; an install that is not told to fail adds to it.
rpm_script='for name; do :; done
grep -qxF "$name" "$PLACE/installed"'
manager_script='echo "$(basename "$0") $*" >>"$PLACE/calls"
case " $* " in *" ${ABSENT:-no such package} "*) echo "No match for argument: $ABSENT"; exit 1 ;; esac
for name; do echo "$name" >>"$PLACE/installed"; done'
with_manager() {
  machine
  script "$place/bin/$1" "$manager_script"
  case $1 in
    dnf | zypper) script "$place/bin/rpm" "$rpm_script" ;;
    pacman) script "$place/bin/pacman" 'if [ "$1" = -T ]; then grep -qxF "$2" "$PLACE/installed"; exit; fi
'"$manager_script" ;;
  esac
  : >"$place/installed"
}
# run [variables...]: a first build; its exit code is in $code.
run() {
  rm -rf "$place/clone/build" "$place/calls"
  : >"$place/calls"
  code=0
  env -u REDLINE_PACKAGES "$@" PLACE="$place" PATH="$place/bin" REDLINE_CUDA=skip "$place/clone/redline" demo \
    >"$place/out" 2>"$place/said" </dev/null || code=$?
}
expect() { grep -qE -- "$2" "$place/$1" || fail "$1 lacks: $2"; }

# --- The table ---
# Every row that a build takes names a package or a dash for each manager, then why.
awk '/^\[/ { exit } /^ *(#|$)/ { next } { ++rows }
  NF < 5 { print "a row is short: " $0; bad = 1 }
  { for (i = 1; i <= 4; ++i) if ($i !~ /^([a-z0-9][a-z0-9+_.-]*\??|pkgconfig\([a-z0-9]+\)|-)$/) { print "not a name: " $i; bad = 1 } }
  $1 == "-" || $1 ~ /\?$/ { print "Debian has all of them: " $0; bad = 1 }
  END { exit bad || rows < 20 }' "$repository/cmake/packages.txt" || fail "the table is not whole"

# --- Each manager ---
column() { awk -v c="$1" '/^\[/ { exit } /^ *(#|$)/ { next } $c != "-" && $c !~ /\?$/ && !seen[$c]++ { print $c }' "$repository/cmake/packages.txt" | xargs; }
declare -A line=([dnf]='dnf install --setopt=install_weak_deps=False -y' [zypper]='zypper --non-interactive install --no-recommends'
  [pacman]='pacman -S --needed --noconfirm')
at=1
for manager in dnf zypper pacman; do
  at=$((at + 1))
  with_manager $manager
  run
  [ "$code" = 0 ] || fail "$manager: exit code $code"
  grep -qx 'ran demo' "$place/out" || fail "$manager: the program did not run"
  [ "$(head -n 1 "$place/calls")" = "${line[$manager]} $(column $at)" ] || fail "$manager was called as: $(cat "$place/calls")"
  run
  [ ! -s "$place/calls" ] || fail "$manager was asked again: $(cat "$place/calls")"

  # Without root, the command is shown, and nothing is done.
  with_manager $manager
  run IDENTITY=1000
  [ "$code" = 69 ] || fail "$manager without root: exit code $code"
  [ ! -s "$place/calls" ] || fail "$manager was called without root"
  # What is shown can be pasted: a shell makes the same words of it, each a name of the column.
  shown=$(sed -n 's/^  sudo //p' "$place/said")
  words=()
  eval "words=($shown)"
  [ "$(printf '%s\n' "${words[@]}" | tail -n "$(column $at | wc -w)" | xargs)" = "$(column $at)" ] || fail "$manager: shown as: $shown"
  expect said 'the wheel needs no packages'
done

# --- What a system does not offer ---
with_manager dnf
run ABSENT=onednn-devel
[ "$code" = 69 ] || fail "exit code $code"
expect said '^No match for argument: onednn-devel$'
expect said 'EPEL and CRB'
expect said 'dnf failed .*packages.log.*the packages wanted are: gcc-c\+\+'

with_manager dnf
run ABSENT=gloo-devel
[ "$code" = 0 ] || fail "exit code $code"
expect said 'dnf has no gloo-devel: the build does without it'

# --- No manager that is known ---
machine
run
[ "$code" = 0 ] || fail "with CMake and ninja the build is tried, but: $code"
rm "$place/bin/cmake"
run
[ "$code" = 69 ] || fail "exit code $code"
expect said 'no package manager here that is known: the wheel .*install what these Debian packages hold: g\+\+ cmake'

# --- Chart.js by npm, where the system has no package of it ---
if command -v cmake >/dev/null; then
  mkdir -p "$place/root/build" "$place/root/bin" "$place/npm/package/dist"
  echo 'a chart' >"$place/npm/package/dist/chart.min.js"
  script "$place/root/bin/npm" '[ "$*" = "pack --silent chart.js@3.9.1" ] && [ -z "$OFFLINE" ] && tar -czf chart.js-3.9.1.tgz -C "$PLACE/npm" package'
  cat >"$place/find.cmake" <<END
set(PROJECT_BINARY_DIR $place/root/build)
set(CMAKE_FIND_ROOT_PATH $place/root)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
include($repository/cmake/ChartJs.cmake)
message("found \${REDLINE_CHART_JS}")
END
  find_chart() { env PLACE="$place" PATH="$place/root/bin:$PATH" "$@" cmake -P "$place/find.cmake" >"$place/said" 2>&1; }
  if find_chart OFFLINE=1; then fail "found without npm's help"; fi
  expect said "npm pack chart.js@3.9.1"
  find_chart OFFLINE= || fail "not found"
  expect said "^found $place/root/build/_deps/chart.js/package/dist/chart.min.js$"
fi
echo "all as expected"
