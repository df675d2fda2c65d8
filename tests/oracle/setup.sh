#!/bin/sh
# Build .venv-oracle: the real lerobot reader and writer, kept apart because it pins an older torch.
#
# lerobot 0.4.4 is installed without its dependencies; what its dataset layer imports is listed here by
# hand. torchvision's wheel expects another libtorch, so it is installed alone too and tests/oracle/shim.py
# declares the operators it looks for at import. Run again at any time: it does nothing when all is there.
set -eu
cd "$(dirname "$0")/../.."
venv=${1:-.venv-oracle}
stamp="$venv/.complete-0.4.4-1"
[ -e "$stamp" ] && exit 0
"${PYTHON:-python3}" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check -q install"
$pip "torch==2.13.0" "numpy>=2" "av>=17" pyarrow pillow "pandas>=2.2" datasets "huggingface_hub>=0.34" \
     packaging jsonlines einops draccus deepdiff tqdm termcolor safetensors imageio accelerate
$pip --no-deps "torchvision==0.28.0" "lerobot==0.4.4"
touch "$stamp"
