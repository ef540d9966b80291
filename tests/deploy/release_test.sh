#!/usr/bin/env bash
# What a release gives on systems that have nothing of it: the wheel in fresh Debian 12 and Ubuntu 24.04 roots up to the end of
# the demo, and the steps of deploy/release.def and deploy/release.Dockerfile with the bundle:
# release_test.sh <repository> <folder to work in>. No compiler is in the roots, and pip gets nothing but the wheel. Exits
# with 77 where the machine cannot.
set -euo pipefail
repository=$(readlink -f -- "$1")
mkdir -p -- "$2"
folder=$(readlink -f -- "$2")

skip() {
  echo "skipped: $*"
  exit 77
}
fail() {
  echo "failed: $*"
  exit 1
}
[ "$(id -u)" -eq 0 ] || skip "roots need root"
for tool in debootstrap chroot; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done

# make_root <suite> <mirror> <script of debootstrap> [its options...]: a root with Python and nothing else, kept from run to run.
make_root() {
  local suite=$1 mirror=$2 script=$3
  shift 3
  [ ! -e "$folder/$suite.done" ] || return 0
  rm -rf "${folder:?}/$suite"
  debootstrap --variant=minbase --include=python3-venv "$@" "$suite" "$folder/$suite" "$mirror" "$script" >"$folder/$suite.log" 2>&1 || return 1
  touch "$folder/$suite.done"
}
# in_root <suite> <command...>: with what a container has of the system, and an environment of its own.
in_root() {
  local root=$folder/$1
  shift
  # shellcheck disable=SC2016
  unshare --mount --fork sh -c 'mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --bind /dev "$1/dev" && shift && exec "$@"' sh "$root" \
    chroot "$root" env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin "$@"
}

"$repository/deploy/release" --cpu "$folder/release" || fail "deploy/release"
wheel=$(basename "$folder"/release/redline_train-*.whl)
bundle=$(basename "$folder"/release/redline-*.tar.gz)

# --- The wheel ---
try_wheel() {
  local suite=$1 root=$folder/$1 began=$SECONDS
  in_root "$suite" true || skip "mounting is not permitted"
  if in_root "$suite" sh -c 'command -v cc || command -v gcc || command -v c++'; then fail "$suite has a compiler"; fi
  rm -rf "$root/try"
  mkdir "$root/try"
  cp "$folder/release/$wheel" "$root/try/"
  in_root "$suite" sh -ec "cd /try && python3 -m venv env && env/bin/pip -q --disable-pip-version-check install --no-index $wheel" ||
    fail "$suite: the wheel does not install"
  local installed=$((SECONDS - began))
  in_root "$suite" sh -c 'cd /try && env/bin/redline demo' >"$folder/$suite-demo.log" 2>&1 || {
    tail -n 20 "$folder/$suite-demo.log"
    fail "$suite: the demo"
  }
  local training
  training=$(sed -n 's/.*result *finished.* in \([0-9:]*\).*/\1/p' "$folder/$suite-demo.log")
  [ -n "$training" ] || fail "$suite: the demo did not say that it finished"
  find "$root/try" -name report.html | grep -q . || fail "$suite: the demo left no report"
  rm -rf "$root/try"
  echo "$suite: wheel installed in $installed s, demo to its end in $((SECONDS - began - installed)) s, of which training $training"
}
# shellcheck disable=SC2016  # apt fills that in
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
[ -n "$mirror" ] || skip "apt knows no mirror of Debian 12"
make_root bookworm "$mirror" sid || skip "no Debian 12 can be made (log: $folder/bookworm.log)"
try_wheel bookworm
# debootstrap's script for Ubuntu knows its mirror. Debian has no package with Ubuntu's keys.
mirror=$(sed -n 's/^\t*default_mirror //p' /usr/share/debootstrap/scripts/gutsy | grep archive | head -n 1)
if make_root noble "$mirror" gutsy --components=main,universe --no-check-gpg; then
  try_wheel noble
else
  echo "no Ubuntu 24.04 can be made here (log: $folder/noble.log)"
fi

# --- Apptainer's definition: its sections, done as Apptainer does them ---
definition=$repository/deploy/release.def
section() { awk -v name="%$1" '/^%/ { on = $1 == name; next } on' "$definition" | sed -e "s#{{ bundle }}#$folder/release/$bundle#g"; }
root=$folder/image
rm -rf "$root"
cp -a "$folder/bookworm" "$root"
while read -r from to; do cp "$from" "$root$to"; done < <(section files | sed '/^ *$/d')
if section files post environment runscript test | grep -q '{{'; then fail "an argument of the definition is not known"; fi
in_root image sh -ec "$(section post)" || fail "%post"
[ ! -e "$root/opt/redline.tar.gz" ] || fail "the bundle is still in the image"
in_root image sh -ec "$(section environment; section test)" || fail "%test"
in_root image sh -ec "$(section environment; section runscript)" redline --version | grep -q '^redline [0-9]' || fail "%runscript"
in_root image sh -ec "$(section environment); redline --version" >/dev/null || fail "%environment"
if command -v apptainer >/dev/null; then
  apptainer build --force --build-arg "bundle=$folder/release/$bundle" --build-arg base=debian:12-slim "$folder/redline.sif" "$definition"
fi
rm -rf "$root"
echo "release.def: its steps pass"

# --- The image ---
if ! command -v buildah >/dev/null; then
  echo "release.Dockerfile is left out: buildah is not installed"
  exit 0
fi
storage=$folder/storage
in_storage() { buildah --root "$storage" --runroot "$storage/run" --storage-driver vfs "$@"; }
trap 'in_storage rm --all >/dev/null 2>&1 || true; in_storage rmi --all --force >/dev/null 2>&1 || true; rm -rf "$storage"' EXIT
container=$(in_storage from scratch)
in_storage copy -q "$container" "$folder/bookworm" / >/dev/null
in_storage commit -q "$container" redline-base >/dev/null
in_storage rm "$container" >/dev/null
in_storage bud -q --isolation chroot --build-arg BASE=localhost/redline-base -f "$repository/deploy/release.Dockerfile" -t redline \
  "$folder/release" >"$folder/build.log" 2>&1 || { tail -n 30 "$folder/build.log"; exit 1; }
container=$(in_storage from redline)
inside() { in_storage run --isolation chroot "$container" -- "$@"; }
[ "$(inside id -u)" = 10001 ] || fail "the image runs as root"
inside redline train synthetic --model resnet18 --image-size 32 -b 2 --steps 2 -o /work/runs -q
echo "release.Dockerfile: the image trains"
