# Sourced by the other scripts: makes .venv, and refreshes it when the project's own files have changed.
# usage: setup_venv [EXTRA…]
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"
installed="$venv/installed" # first line: fingerprint of what was installed; second: with which extras

find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "MPREG needs Python 3.11 or newer; set PYTHON to one." >&2
  return 1
}

make_venv() {
  local python
  python=$(find_python)
  rm -rf "$venv"
  "$python" -m venv "$venv" 2>/dev/null && return
  # Some distributions split ensurepip off: then the python's own pip installs into the environment.
  rm -rf "$venv"
  "$python" -m venv --without-pip "$venv"
  "$python" -m pip --python "$venv/bin/python" install -q pip
}

setup_venv() {
  local now had="" extras="" extra missing=0 list
  now=$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)
  if [ -f "$installed" ]; then
    { read -r had; read -r extras || true; } <"$installed"
  fi
  for extra in "$@"; do
    case " $extras " in *" $extra "*) ;; *) extras="$extras $extra" missing=1 ;; esac
  done
  [ "$had" = "$now" ] && [ "$missing" = 0 ] && return
  [ -x "$venv/bin/python" ] || make_venv
  list=$(echo $extras | tr ' ' ',')
  echo "Installing MPREG${list:+ [$list]} into .venv …" >&2
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -c "$root/constraints.txt" -e "$root${list:+[$list]}" >&2
  printf '%s\n%s\n' "$now" "$extras" >"$installed"
}

# arq needs an older redis client than the other peers of the benchmarks, so it has an environment of its own.
setup_arq() {
  [ -x "$root/.venv-arq/bin/python" ] && return
  echo "Installing arq into .venv-arq …" >&2
  "$(find_python)" -m venv "$root/.venv-arq"
  "$root/.venv-arq/bin/python" -m pip install -q --disable-pip-version-check arq hiredis uvloop msgspec >&2
}
