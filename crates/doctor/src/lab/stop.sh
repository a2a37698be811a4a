#!/bin/sh
# Written by penstock lab-setup.
cd "@DIR@/run" 2> /dev/null || exit 0
for file in proxy.pid nginx.pid; do
    [ -s "$file" ] || continue
    pid=$(head -n 1 "$file")
    kill "$pid" 2> /dev/null
    # Five seconds to end by itself.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$pid" 2> /dev/null || break
        sleep 0.5
    done
    rm -f "$file"
done
exit 0
