#!/bin/sh
# Written by penstock lab-setup: the client side. SERVER is where the server side runs.
#   sh load.sh SERVER handshake [SECONDS]      full handshakes, one request each
#   sh load.sh SERVER data_1MB [SECONDS]       bodies, keep-alive
set -eu
server=${1:?the address of the server side}
what=${2:-handshake}
seconds=${3:-30}
case "$what" in
    handshake) exec @PIN@wrk -t @THREADS@ -c 1600 -d "$seconds" --latency -H "Connection: close" "https://$server:@PORT@/handshake" ;;
    *) exec @PIN@wrk -t @THREADS@ -c 400 -d "$seconds" --latency "https://$server:@PORT@/$what" ;;
esac
