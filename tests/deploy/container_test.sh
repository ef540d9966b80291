#!/usr/bin/env bash
# Builds deploy/Dockerfile without a daemon and without a registry of images, on a Debian of its own, and runs the demo in
# what comes out: container_test.sh <repository> <folder to work in>. Exits with 77 where the machine cannot.
set -euo pipefail
repository=$(readlink -f -- "$1")
mkdir -p -- "$2"
folder=$(readlink -f -- "$2")

skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "building without a daemon needs root here"
for tool in buildah debootstrap apt-get; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done

# The mirror and whatever else this machine's apt was told are good for the image too.
base=$folder/base
if [ ! -e "$base.done" ]; then
  rm -rf "$base"
  # shellcheck disable=SC2016  # apt fills that in
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
  [ -n "$mirror" ] || skip "apt knows no mirror of Debian 12"
  debootstrap --variant=minbase bookworm "$base" "$mirror" >"$folder/debootstrap.log"
  rm -rf "$base/etc/apt"
  cp -r /etc/apt "$base/etc/apt"
  touch "$base.done"
fi

storage=$folder/storage
in_storage() { buildah --root "$storage" --runroot "$storage/run" --storage-driver vfs "$@"; }
trap 'in_storage rm --all >/dev/null 2>&1 || true; in_storage rmi --all --force >/dev/null 2>&1 || true; rm -rf "$storage"' EXIT

container=$(in_storage from scratch)
in_storage copy -q "$container" "$base" / >/dev/null
in_storage commit -q "$container" redline-base >/dev/null
in_storage rm "$container" >/dev/null
in_storage bud -q --isolation chroot --build-arg BASE=localhost/redline-base -f "$repository/deploy/Dockerfile" -t redline \
  "$repository" >"$folder/build.log" 2>&1 || { tail -n 30 "$folder/build.log"; exit 1; }

container=$(in_storage from redline)
inside() { in_storage run --isolation chroot "$container" -- "$@"; }
[ "$(inside id -u)" = 10001 ] || { echo "it runs as root"; exit 1; }
if inside test -e /usr/bin/g++; then echo "the compiler is in it"; exit 1; fi
own=$(inside du -sm /opt/redline | cut -f 1)
echo "Redline takes $own MB of the image"
[ "$own" -le 200 ] || { echo "that is too much"; exit 1; }
inside redline --version
inside redline demo
