#!/bin/sh
set -e

# Options alone are haproxy's.
case "${1:-}" in
-*) set -- haproxy "$@" ;;
esac
# A master in the foreground, which SIGUSR2 reloads and SIGUSR1 drains.
if [ "${1:-}" = haproxy ]; then
    shift
    set -- haproxy -W -db "$@"
fi
exec "$@"
