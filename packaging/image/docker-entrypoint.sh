#!/bin/sh
set -e

# If there are only options, they are for haproxy.
case "${1:-}" in
-*) set -- haproxy "$@" ;;
esac
# Run a master in the foreground: SIGUSR2 reloads, SIGUSR1 drains.
if [ "${1:-}" = haproxy ]; then
    shift
    set -- haproxy -W -db "$@"
fi
exec "$@"
