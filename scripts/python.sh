# Find a Python 3.11 or newer that starts. Sourced by ./demo, ./bench and ./test.

find_python() {
  local name
  # First the one in .venv: it starts at once; a version manager's shim is slow or fails.
  for name in .venv/bin/python python3.14 python3.13 python3.12 python3.11 python3; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$name"
      return
    fi
  done
  echo "error: Python 3.11 or newer was not found" >&2
  if command -v apt-get >/dev/null; then
    echo "  type: sudo apt-get update && sudo apt-get install -y python3 python3-venv" >&2
  elif command -v dnf >/dev/null; then
    echo "  type: sudo dnf install -y python3.12" >&2
  elif command -v apk >/dev/null; then
    echo "  type: apk add python3" >&2
  elif command -v brew >/dev/null; then
    echo "  type: brew install python@3.12" >&2
  else
    echo "  install it from your system's packages or from python.org" >&2
  fi
  return 2
}
