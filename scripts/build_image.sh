#!/usr/bin/env bash
# Builds the container images of the newest packages in dist/, sopa-controller and sopa-agent, into podman's store (root), on a
# Debian that debootstrap makes: no registry is asked.
#
#   scripts/build_image.sh [--save DIRECTORY]    OCI archives there, for podman load, skopeo or ctr images import
set -euo pipefail

PACKAGES=(buildah podman runc debootstrap)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=image
. scripts/debian.sh
((EUID == 0)) || die "only root can make a Debian root: sudo make image"
save=
while (($#)); do
    case $1 in
    --save) save=$(realpath -m "${2:?--save needs a directory}") ;;
    *) die "unknown argument $1 (there is --save)" ;;
    esac
    shift 2
done
install_missing "a minute" "${PACKAGES[@]}"
make_debian "$PWD/build/deb/chroot"

base=localhost/sopa-debian
tar --create --directory build/deb/chroot --exclude=./proc/* --exclude=./sys/* . | podman import --quiet - "$base" >/dev/null
for name in controller agent; do
    deb=$(find dist -name "sopa-${name}_*_$(dpkg --print-architecture).deb" -printf '%T@ %p\n' | sort -n | sed -n '$s/^[^ ]* //p')
    [[ $deb ]] || die "dist/ has no package sopa-$name: make deb"
    version=${deb#*_}
    version=${version%_*}
    version=${version//[~+]/-} # a tag has neither
    rm -rf build/image # of a run that was cut
    mkdir -p build/image/dist build/image/scripts
    cp "$deb" build/image/dist/
    cp scripts/image_root.sh build/image/scripts/
    buildah build --quiet --isolation chroot --network host --pull-never --build-arg "BASE=$base" --target "$name" \
        --file deploy/Containerfile --tag "localhost/sopa-$name:$version" --tag "localhost/sopa-$name:latest" build/image >/dev/null
    rm -r build/image
    say "localhost/sopa-$name:$version, $(podman image inspect --format '{{.Size}}' "localhost/sopa-$name" | numfmt --to=si)B"
    [[ -z $save ]] || { mkdir -p "$save" && podman save --quiet --format oci-archive --output "$save/sopa-$name.tar" "localhost/sopa-$name:$version"; }
done
podman image rm "$base" >/dev/null
