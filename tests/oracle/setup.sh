#!/bin/sh
# Build .venv-oracle: the real lerobot reader and writer, kept apart because it pins an older torch.
#
# lerobot 0.4.4 is installed without its dependencies; what its dataset layer imports is pinned in
# requirements/oracle.txt. torchvision's wheel expects another libtorch, so it is installed alone too and tests/oracle/shim.py
# declares the operators it looks for at import. torchcodec (for benchmarks/data_loading.py) wants FFmpeg
# under its usual names: links to the libraries that come with PyAV serve, so that both decode with the
# same FFmpeg. Run again at any time: it does nothing when all is there.
set -eu
cd "$(dirname "$0")/../.."
venv=${1:-.venv-oracle}
stamp="$venv/.complete-0.4.4-2"
[ -e "$stamp" ] && exit 0
"${PYTHON:-.venv/bin/python}" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check -q install"
$pip -r requirements/oracle.txt
$pip --no-deps "torchvision==0.28.0" "torchcodec==0.13.0" "lerobot==0.4.4"
mkdir -p "$venv/ffmpeg"
for library in "$venv"/lib/python*/site-packages/av.libs/lib*.so.*; do
    name=$(basename "$library" | sed -E 's/-[0-9a-f]+\.so\.([0-9]+).*/.so.\1/')
    case $name in libav*|libsw*) ln -sf "$(realpath "$library")" "$venv/ffmpeg/$name" ;; esac
done
touch "$stamp"
