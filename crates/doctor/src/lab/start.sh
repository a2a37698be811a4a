#!/bin/sh
# Written by penstock lab-setup. Makes what is missing, starts the backend and the proxy; stop.sh ends both.
set -eu
umask 077
# As many descriptors as this user may have: maxconn follows from them.
ulimit -n "$(ulimit -Hn)"
sh "@DIR@/stop.sh"
mkdir -p "@DIR@/run/files"
cd "@DIR@/run"
for file in 1KB:1024 10KB:10240 100KB:102400 1MB:1048576 10MB:10485760; do
    [ -f "files/data_${file%%:*}" ] || head -c "${file##*:}" /dev/urandom > "files/data_${file%%:*}"
done
chmod -R go+rX files && chmod go+x . ..
if [ ! -f site-@CERTIFICATE@.pem ]; then
    openssl req -x509 -newkey @NEWKEY@ -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout key.pem -out crt.pem 2> openssl.log
    cat crt.pem key.pem > site-@CERTIFICATE@.pem
    rm crt.pem key.pem
fi
ln -sf site-@CERTIFICATE@.pem site.pem
@PINBACKEND@nginx -c "@DIR@/nginx.conf"
@PROXY@ -f "@DIR@/proxy.cfg" -D || {
    sh "@DIR@/stop.sh"
    exit 1
}
echo "https://localhost:@PORT@/handshake and /data_1KB ... /data_10MB"
