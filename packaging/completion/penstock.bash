# Completion of penstock for bash; made by `penstock completion bash`.
_penstock() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local at='' before='' offered='' values='' names='' i=2 name
    COMPREPLY=()
    [ "$COMP_CWORD" -lt 2 ] || at="${COMP_WORDS[1]}"
    case "$at" in
    bench) [ "$COMP_CWORD" -lt 3 ] || { at="$at ${COMP_WORDS[2]}"; i=3; } ;;
    esac
    case "$at" in
    '')
        offered='-f -- -cc -c -C -vv -v -V -q -h --help --version -D -Ws -W -db -dW -dD -dV -dr -dM -dI -d -n -N -m -L -p -sf -st -x -S quickstart check ctl top bench plan doctor lab-setup keywords completion man help'
        values=' -f -- -cc -C -n -N -m -L -p -sf -st -x -S '
        names=''
        ;;
    'quickstart')
        offered=''
        values='  '
        names=''
        ;;
    'check')
        offered=''
        values='  '
        names=''
        ;;
    'ctl')
        offered='-s -f --json --interval --help'
        values=' -s -f --interval '
        names='_getsocks
abort ssl ca-file
abort ssl cert
abort ssl crl-file
add acl
add map
add server
add ssl ca-file
add ssl crt-list
clear acl
clear counters
clear counters all
clear map
clear table
commit acl
commit map
commit ssl ca-file
commit ssl cert
commit ssl crl-file
debug dev
del acl
del map
del server
del ssl ca-file
del ssl cert
del ssl crl-file
del ssl crt-list
disable agent
disable dynamic-cookie backend
disable frontend
disable health
disable server
dump ssl cert
dump stats-file
echo
enable agent
enable dynamic-cookie backend
enable frontend
enable health
enable server
experimental-mode
expert-mode
get acl
get map
get var
get weight
help
httpclient
new ssl ca-file
new ssl cert
new ssl crl-file
operator
prepare acl
prepare map
prompt
quit
set dynamic-cookie-key backend
set map
set maxconn frontend
set maxconn global
set maxconn server
set profiling
set rate-limit
set server
set severity-output
set ssl ca-file
set ssl cert
set ssl crl-file
set ssl ocsp-response
set ssl tls-key
set table
set timeout
set var
set weight
show acl
show activity
show backend
show cache
show cli level
show cli sockets
show engine
show env
show errors
show events
show fd
show info
show libs
show line
show map
show peers
show pools
show profiling
show resolvers
show schema json
show servers conn
show servers state
show sess
show ssl ca-file
show ssl cert
show ssl crl-file
show ssl crt-list
show ssl ocsp-response
show ssl ocsp-updates
show ssl providers
show ssl sni
show startup-logs
show stat
show table
show taps
show tasks
show threads
show tls-keys
show trace
show version
shutdown frontend
shutdown session
shutdown sessions server
trace
update ssl ocsp-response
user
wait'
        ;;
    'top')
        offered='--once --interval --width --help'
        values=' --interval --width '
        names=''
        ;;
    'bench')
        offered='load agent certs study report compare'
        values='  '
        names=''
        ;;
    'bench load')
        offered='--mode --resume -c -t -d -n -H --latency --timeout --rate --warm-up --cores --method --http2 --streams --tls --suite --group --signature --sni --verify --check-signatures --connect --proxy --source --server --agents --ca --cert --key --json --csv --quiet --help'
        values=' --mode -c -t -d -n -H --timeout --rate --warm-up --cores --method --streams --tls --suite --group --signature --sni --verify --connect --proxy --source --server --agents --ca --cert --key --json --csv '
        names=''
        [ "$previous" != --tls ] || offered='1.2 1.3' values='' names=''
        ;;
    'bench agent')
        offered='--listen --ca --cert --key --source --help'
        values=' --listen --ca --cert --key --source '
        names=''
        ;;
    'bench certs')
        offered=''
        values='  '
        names=''
        ;;
    'bench study')
        offered='--quick --out --contestants --cases --steps --server-cores --client-cores --origin-cores --duration --rounds --connections --rates --target-rate --bound --delay --jitter --loss --own-network --agents --ca --cert --key --listen --perf --penstock --haproxy --nginx --squid --sslsplit --c-icap --qat-libraries --json --help'
        values=' --out --contestants --cases --steps --server-cores --client-cores --origin-cores --duration --rounds --connections --rates --target-rate --bound --delay --jitter --loss --agents --ca --cert --key --listen --penstock --haproxy --nginx --squid --sslsplit --c-icap --qat-libraries '
        names='handshake-modes
cores-saved
cpu-against-rate
max-rate
core-scaling
handshake
throughput
offload
orchestration'
        ;;
    'bench report')
        offered='--html --svg --markdown --help'
        values=' --html --svg --markdown '
        names=''
        ;;
    'bench compare')
        offered='--target-rate --html --json --help'
        values=' --target-rate --html '
        names=''
        ;;
    'plan')
        offered='--published --level --native --sw --hw --device-peak --study --view --measure --crt --key --tls --seconds --resumption --cards --submit-us --json --csv --html --help --server-usd --card-usd --server-kw --card-kw --usd-per-kwh --pue --unit-usd-year --rack-units --rack-kw --servers-per-rack --cores-per-server --core-step --months --units-per-server --cards-per-server --hours-per-month --max-utilisation --attribution'
        values=' --level --native --sw --hw --device-peak --study --view --crt --key --tls --seconds --resumption --cards --submit-us --html --server-usd --card-usd --server-kw --card-kw --usd-per-kwh --pue --unit-usd-year --rack-units --rack-kw --servers-per-rack --cores-per-server --core-step --months --units-per-server --cards-per-server --hours-per-month --max-utilisation --attribution '
        names=''
        [ "$previous" != --tls ] || offered='1.2 1.3' values='' names=''
        [ "$previous" != --attribution ] || offered='whole cores' values='' names=''
        ;;
    'doctor')
        offered='-f --json --fix --apply --undo --force --only --metrics --host --record --help'
        values=' -f --only --metrics --host '
        names='qat
qat down
qat reset
qat restart
qat status
qat up'
        ;;
    'lab-setup')
        offered='--role --mode --proxy --haproxy-cores --nbthread --backend-cores --backend-workers --keep-alive --certificate --port --backend-port --bind-irq-devices --freq --uncore --governor --dir --only-files -y --undo --force --host --help'
        values=' --role --mode --proxy --haproxy-cores --nbthread --backend-cores --backend-workers --keep-alive --certificate --port --backend-port --bind-irq-devices --freq --uncore --governor --dir --host '
        names=''
        [ "$previous" != --role ] || offered='server client' values='' names=''
        [ "$previous" != --mode ] || offered='native sw hw' values='' names=''
        [ "$previous" != --proxy ] || offered='penstock haproxy' values='' names=''
        [ "$previous" != --keep-alive ] || offered='on off' values='' names=''
        ;;
    'keywords')
        offered=''
        values='  '
        names=''
        ;;
    'completion')
        offered=''
        values='  '
        names='bash
zsh
fish'
        ;;
    'man')
        offered=''
        values='  '
        names='penstock
penstock-ctl
penstock.cfg'
        ;;
    'help')
        offered=''
        values='  '
        names=''
        ;;
    *)
        offered='-f -- -cc -c -C -vv -v -V -q -h --help --version -D -Ws -W -db -dW -dD -dV -dr -dM -dI -d -n -N -m -L -p -sf -st -x -S -dC -dF -dG -dR -dS -de -dp -dt -dZ -dL -dK'
        values=' -f -- -cc -C -n -N -m -L -p -sf -st -x -S '
        names=''
        ;;
    esac
    # A value: readline completes file names.
    case "$values" in *" $previous "*) return ;; esac
    while [ "$i" -lt "$COMP_CWORD" ]; do
        case "${COMP_WORDS[i]}" in
        -*) case "$values" in *" ${COMP_WORDS[i]} "*) i=$((i + 1)) ;; esac ;;
        *) before="$before${COMP_WORDS[i]} " ;;
        esac
        i=$((i + 1))
    done
    before="${before#watch }"
    # Behind the first word of a command to ctl, all belongs to that.
    if [ "$at" != ctl ] || [ -z "$before" ]; then
        for name in $offered; do
            case "$name" in "$current"*) COMPREPLY+=("$name") ;; esac
        done
    fi
    [ -n "$names" ] || return 0
    while IFS= read -r name; do
        case "$name" in "$before$current"*) ;; *) continue ;; esac
        name="${name#"$before"}"
        name="${name%% *}"
        case " ${COMPREPLY[*]} " in *" $name "*) ;; *) COMPREPLY+=("$name") ;; esac
    done <<EOF
$names
EOF
}
complete -o default -F _penstock penstock haproxy
