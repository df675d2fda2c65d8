#!/usr/bin/env bash
# Make sure that MuJoCo can render without a display: use EGL or OSMesa if either works, install EGL where
# that is permitted, else stop with the exact line to type.
# usage: scripts/gl.sh VENV
set -euo pipefail
venv=$1
[ "$(uname)" = Linux ] || exit 0  # macOS brings its own GL

renders() {
  MUJOCO_GL=$1 "$venv/bin/python" - >/dev/null 2>&1 <<'P'
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light pos='0 0 3'/><geom size='.1' rgba='1 0 0 1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().max() > 0
P
}

works() { renders egl || renders osmesa; }

works && exit 0
line="apt-get install -y --no-install-recommends libegl1 libgl1 libopengl0 libgl1-mesa-dri"
if command -v apt-get >/dev/null 2>&1; then
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    if sudo -n true >/dev/null 2>&1; then sudo="sudo -n env DEBIAN_FRONTEND=noninteractive"; else sudo="-"; fi
  fi
  if [ "$sudo" != "-" ]; then
    echo "installing the headless GL libraries MuJoCo needs: $line"
    $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo $line -qq >/dev/null || true
    works && exit 0
  fi
  echo "MuJoCo cannot render here: neither EGL nor OSMesa loads. Type this, then run make again:" >&2
  echo "  sudo apt-get update && sudo $line" >&2
elif command -v dnf >/dev/null 2>&1; then
  echo "MuJoCo cannot render here: neither EGL nor OSMesa loads. Type this, then run make again:" >&2
  echo "  sudo dnf install -y mesa-libEGL mesa-libGL mesa-dri-drivers libglvnd-opengl" >&2
elif command -v pacman >/dev/null 2>&1; then
  echo "MuJoCo cannot render here: neither EGL nor OSMesa loads. Type this, then run make again:" >&2
  echo "  sudo pacman -S --needed libglvnd mesa" >&2
else
  echo "MuJoCo cannot render here: install your system's EGL or OSMesa libraries (Mesa), then run make again." >&2
fi
exit 1
