# Completion of penstock for fish; made by `penstock completion fish`.
function __penstock
    set -l typed (commandline -opc)
    set -l previous $typed[-1]
    set -l i 3
    set -l at ''
    set -l before ''
    set -l offered
    set -l values
    set -l names
    test (count $typed) -ge 2; and set at $typed[2]
    if contains -- "$at" bench; and test (count $typed) -ge 3
        set at "$at $typed[3]"
        set i 4
    end
    switch "$at"
        case ''
            set offered '-f'\t'reads a configuration file, or the *.cfg files of a directory in order; may be repeated' '--'\t'every argument after it is a configuration file' '-cc'\t'evaluates a condition of .if: exits with 0 when true, 1 when false, 2 on an error' '-c'\t'checks the configuration and exits: 0 when it can start, 1 on errors, 2 without a listener' '-C'\t'changes to this directory first' '-vv'\t'shows version, features, libraries and the crypto engine of this machine' '-v'\t'shows the version' '-V'\t'shows messages again, after -q' '-q'\t'shows no messages, only sets the exit status' '-h'\t'shows this help' '--help'\t'shows this help' '--version'\t'shows the version' '-D'\t'runs in the background' '-Ws'\t'like -W, for a systemd service of type notify: \'daemon\' in the configuration is ignored' '-W'\t'master and worker: SIGUSR2 reloads, SIGUSR1 drains, SIGTERM stops' '-db'\t'stays in the foreground, even where the file says \'daemon\'' '-dW'\t'does not start when there is a warning' '-dD'\t'reports suspicious statements too' '-dV'\t'does not verify the certificates of servers' '-dr'\t'starts even when a server\'s name does not resolve' '-dM'\t'fills memory with this byte (0x50) before use' '-dI'\t'lets the process start programs, as \'insecure-fork-wanted\' does' '-d'\t'stays in the foreground and shows requests and responses' '-n'\t'limits the connections of the process, whatever \'maxconn\' says' '-N'\t'default limit of each proxy' '-m'\t'limits the memory of each process (RLIMIT_DATA)' '-L'\t'name of this peer, the host name by default' '-p'\t'writes the process ids to this file' '-sf'\t'once started, tells these processes to finish (SIGUSR1)' '-st'\t'once started, tells these processes to stop (SIGTERM)' '-x'\t'takes listening sockets over from the process behind this stats socket (expose-fd listeners)' '-S'\t'answers commands to the master on this address; ADDRESS[,mode,600,level,operator]' 'quickstart'\t'starts a complete HTTPS load balancer with two backends, for a first look' 'check'\t'shows everything that is wrong with a configuration, as -c does' 'ctl'\t'gives commands to a running process, on its stats socket' 'top'\t'shows what a running process does, from its metrics' 'bench'\t'measures any TLS server' 'plan'\t'calculates what a service level needs: cores, servers, devices, power, cost' 'doctor'\t'examines what this machine lacks for a configuration, and fixes it' 'lab-setup'\t'sets up one side of a measurement, and restores the host' 'keywords'\t'lists every keyword of the configuration language' 'completion'\t'prints the script that completes this command line' 'man'\t'prints a manual page, for man -l -' 'help'\t'shows the options and subcommands'
            set values -f -- -cc -C -n -N -m -L -p -sf -st -x -S
            set names 
        case 'quickstart'
            set offered 
            set values 
            set names 
        case 'check'
            set offered 
            set values 
            set names 
        case 'ctl'
            set offered '-s'\t'the stats socket, a path or HOST:PORT [PENSTOCK_SOCKET]' '-f'\t'the configuration whose stats socket it is' '--json'\t'shows the answer as JSON, for commands that show something' '--interval'\t'how often to ask when watching [2]' '--help'\t'shows this help'
            set values -s -f --interval
            set names '_getsocks' 'abort ssl ca-file' 'abort ssl cert' 'abort ssl crl-file' 'add acl' 'add map' 'add server' 'add ssl ca-file' 'add ssl crt-list' 'clear acl' 'clear counters' 'clear counters all' 'clear map' 'clear table' 'commit acl' 'commit map' 'commit ssl ca-file' 'commit ssl cert' 'commit ssl crl-file' 'debug dev' 'del acl' 'del map' 'del server' 'del ssl ca-file' 'del ssl cert' 'del ssl crl-file' 'del ssl crt-list' 'disable agent' 'disable dynamic-cookie backend' 'disable frontend' 'disable health' 'disable server' 'dump ssl cert' 'dump stats-file' 'echo' 'enable agent' 'enable dynamic-cookie backend' 'enable frontend' 'enable health' 'enable server' 'experimental-mode' 'expert-mode' 'get acl' 'get map' 'get var' 'get weight' 'help' 'httpclient' 'new ssl ca-file' 'new ssl cert' 'new ssl crl-file' 'operator' 'prepare acl' 'prepare map' 'prompt' 'quit' 'set dynamic-cookie-key backend' 'set map' 'set maxconn frontend' 'set maxconn global' 'set maxconn server' 'set profiling' 'set rate-limit' 'set server' 'set severity-output' 'set ssl ca-file' 'set ssl cert' 'set ssl crl-file' 'set ssl ocsp-response' 'set ssl tls-key' 'set table' 'set timeout' 'set var' 'set weight' 'show acl' 'show activity' 'show backend' 'show cache' 'show cli level' 'show cli sockets' 'show engine' 'show env' 'show errors' 'show events' 'show fd' 'show info' 'show libs' 'show line' 'show map' 'show peers' 'show pools' 'show profiling' 'show resolvers' 'show schema json' 'show servers conn' 'show servers state' 'show sess' 'show ssl ca-file' 'show ssl cert' 'show ssl crl-file' 'show ssl crt-list' 'show ssl ocsp-response' 'show ssl ocsp-updates' 'show ssl providers' 'show ssl sni' 'show startup-logs' 'show stat' 'show table' 'show taps' 'show tasks' 'show threads' 'show tls-keys' 'show trace' 'show version' 'shutdown frontend' 'shutdown session' 'shutdown sessions server' 'trace' 'update ssl ocsp-response' 'user' 'wait'
        case 'top'
            set offered '--once'\t'prints the view of one interval and exits, for scripts' '--interval'\t'time between two views [1]' '--width'\t'with --once: the width at which lines are cut [160]' '--help'\t'shows this help'
            set values --interval --width
            set names 
        case 'bench'
            set offered 'load'\t'loads a server and reports the result' 'agent'\t'generates this machine\'s share of a load that another machine controls' 'certs'\t'makes the certificates for mutual TLS between the machines of a test' 'study'\t'starts servers, loads them in turn, and reports with figures' 'report'\t'shows a saved result again' 'compare'\t'compares two results of one study, with intervals'
            set values 
            set names 
        case 'bench load'
            set offered '--mode'\t'what a unit is: handshake, request (with a handshake for each), keep-alive, download or idle [keep-alive]' '--resume'\t'resumes sessions; otherwise every handshake is a full one, and that is checked' '-c'\t'number of concurrent connections [10]' '-t'\t'number of threads [1]' '-d'\t'how long: 30, 30s, 2m, 1h [10s]' '-n'\t'ends after this many units' '-H'\t'a header field; may be repeated' '--latency'\t'shows percentiles in detail' '--timeout'\t'gives a unit up after this time, and counts it as an error [10s]' '--rate'\t'open loop: N units a second fall due, whether or not the server keeps up' '--warm-up'\t'load before anything counts [0]' '--cores'\t'processors the threads are pinned to, as in 0-3,8' '--method'\t'the request\'s method [GET]' '--http2'\t'speaks HTTP/2 to the server' '--streams'\t'with --http2: number of concurrent requests on each connection [1]' '--tls'\t'the version of TLS [what the server takes]' '--suite'\t'a cipher suite, by its name in the RFCs or in OpenSSL; may be repeated [AES-128-GCM first]' '--group'\t'x25519, p256, p384, x25519mlkem768; may be repeated [x25519, p256, p384]' '--signature'\t'rsa_pss_rsae_sha256, ecdsa_secp256r1_sha256, ...; may be repeated [any]' '--sni'\t'the name to ask for; {n} in it, in the URL\'s host or in -H is a number of each connection\'s own [the URL\'s]' '--verify'\t'checks chain and signature in every handshake, against the roots in FILE' '--check-signatures'\t'checks the signature in every handshake' '--connect'\t'where to connect to [what the URL\'s host resolves to]' '--proxy'\t'makes each connection through a tunnel of this proxy, by CONNECT' '--source'\t'the source address or interface of connections; may be repeated, to use several in turn' '--server'\t'reads the CPU time of these processes on this machine; may be repeated' '--agents'\t'makes the load from agents (penstock bench agent), in step; also unix:PATH' '--ca'\t'with --agents: the CA certificate that all machines of the test share' '--cert'\t'with --agents: this machine\'s certificate' '--key'\t'with --agents: its key' '--json'\t'writes everything as JSON, \'-\' for standard output instead of the text' '--csv'\t'writes a line a second as CSV, \'-\' for standard output instead of the text' '--quiet'\t'no line each second' '--help'\t'shows this help'
            set values --mode -c -t -d -n -H --timeout --rate --warm-up --cores --method --streams --tls --suite --group --signature --sni --verify --connect --proxy --source --server --agents --ca --cert --key --json --csv
            set names 
            test "$previous" = --tls; and printf '1.2\n1.3\n'; and return
        case 'bench agent'
            set offered '--listen'\t'where, or unix:PATH [127.0.0.1:7313]' '--ca'\t'the CA certificate that all machines of the test share; with it, mutual TLS' '--cert'\t'this machine\'s certificate' '--key'\t'its key' '--source'\t'where this machine\'s connections come from; may be repeated' '--help'\t'shows this help'
            set values --listen --ca --cert --key --source
            set names 
        case 'bench certs'
            set offered 
            set values 
            set names 
        case 'bench study'
            set offered '--quick'\t'one core, seconds instead of minutes: shows that everything works, not what the machine can do' '--out'\t'where result.json, report.html and raw.jsonl go [the study\'s name]' '--contestants'\t'who takes part [all that can]' '--cases'\t'only cases whose names contain one of these words' '--steps'\t'cores of the server, one after the other, as in 1,2,4' '--server-cores'\t'processors of the server, as in 0-7' '--client-cores'\t'processors of the clients [the rest]' '--origin-cores'\t'processors of the backend servers [a third of the rest]' '--duration'\t'length of a window, as in 30s' '--rounds'\t'number of windows for each contestant and case, taken in turn' '--connections'\t'connections at once' '--rates'\t'cpu-against-rate: connections a second to offer [eight steps, up to the highest rate of the fastest contestant]' '--target-rate'\t'cores-saved: the rate that cores are counted for [15000]' '--bound'\t'max-rate, core-scaling: the highest latency allowed [2s]' '--delay'\t'cpu-against-rate: delay of a round trip [50ms]' '--jitter'\t'cpu-against-rate: jitter of a round trip [4ms]' '--loss'\t'cpu-against-rate: packets lost in each direction [0.1]' '--own-network'\t'cpu-against-rate: penstock\'s forwarder even where the kernel has netem' '--agents'\t'makes the load from agents (penstock bench agent), in step' '--ca'\t'with --agents: the CA certificate that all machines of the test share' '--cert'\t'with --agents: this machine\'s certificate' '--key'\t'with --agents: its key' '--listen'\t'where the servers listen, for agents on other machines [127.0.0.1]' '--perf'\t'records call stacks of each contestant, in an extra window' '--penstock'\t'penstock\'s program [this one]' '--haproxy'\t'HAProxy\'s program [the one that is installed]' '--nginx'\t'nginx\'s program [the one that is installed]' '--squid'\t'orchestration: Squid\'s program [the one that is installed]' '--sslsplit'\t'orchestration: SSLsplit\'s program [the one that is installed]' '--c-icap'\t'orchestration: c-icap\'s program, the services that inspect [the one that is installed]' '--qat-libraries'\t'where libqat is for penstock-hw and penstock-hw+sw: a driver\'s, or the device double\'s [the system\'s]' '--json'\t'the result as JSON instead of a report' '--help'\t'shows this help'
            set values --out --contestants --cases --steps --server-cores --client-cores --origin-cores --duration --rounds --connections --rates --target-rate --bound --delay --jitter --loss --agents --ca --cert --key --listen --penstock --haproxy --nginx --squid --sslsplit --c-icap --qat-libraries
            set names 'handshake-modes' 'cores-saved' 'cpu-against-rate' 'max-rate' 'core-scaling' 'handshake' 'throughput' 'offload' 'orchestration'
        case 'bench report'
            set offered '--html'\t'writes the page' '--svg'\t'writes the first figure' '--markdown'\t'writes a short page to go with figure.svg, report.html and result.json' '--help'\t'shows this help'
            set values --html --svg --markdown
            set names 
        case 'bench compare'
            set offered '--target-rate'\t'the rate that cores are counted for [the studies\', else the highest of A]' '--html'\t'writes a page' '--json'\t'the comparison as JSON' '--help'\t'shows this help'
            set values --target-rate --html
            set names 
        case 'plan'
            set offered '--published'\t'plans with the published rates and design points of an eight-server rack' '--level'\t'a service level; may be repeated [5K, 9K, 18K and 30K]' '--native'\t'software one at a time: TPS of a core, or CORES:TPS,CORES:TPS,...' '--sw'\t'software, eight lanes at a time' '--hw'\t'a QuickAssist card with the cores that feed it' '--device-peak'\t'what one card never exceeds [the highest rate of --hw]' '--study'\t'the rates of a study, JSON' '--view'\t'plan, rack, edge, cost, inputs; may be repeated [plan and inputs]' '--measure'\t'measures how many handshakes a second this machine can do, and what would change that; with --level, plans with the result' '--crt'\t'with --measure: the certificate, PEM [an RSA-2048 certificate that is made]' '--key'\t'with --measure: its key, where it is not in the same file' '--tls'\t'with --measure: the version of TLS [1.3]' '--seconds'\t'with --measure: how long, about [3]' '--resumption'\t'with --measure: share of clients that would resume [60%]' '--cards'\t'with --measure: number of QuickAssist cards to consider [1]' '--submit-us'\t'with --measure: CPU to hand a handshake to a card, assumed [10]' '--json'\t'everything as JSON' '--csv'\t'one view as CSV [the plans]' '--html'\t'writes a page with figures, \'-\' for standard output' '--help'\t'shows this help' '--server-usd'\t'price of a server [11289, published]' '--card-usd'\t'price of a QuickAssist card [748, published]' '--server-kw'\t'power of a server [0.6, published]' '--card-kw'\t'power of a card [0.023, published]' '--usd-per-kwh'\t'price of energy [0.12, published]' '--pue'\t'what the site draws for each kW of the rack [1.5, published]' '--unit-usd-year'\t'price of a rack unit\'s space [75.76, published]' '--rack-units'\t'height of a rack [42, published]' '--rack-kw'\t'what a rack may draw, before PUE [10, published]' '--servers-per-rack'\t'servers in a rack [8, published]' '--cores-per-server'\t'of all counts only 26 gives the published idle shares at 5K, 9K and 30K [26, inferred]' '--core-step'\t'cores are allocated in steps; every published allocation is even [2, inferred]' '--months'\t'amortisation of servers and cards; three years are usual [36, NOT PUBLISHED]' '--units-per-server'\t'rack units of a server [1, NOT PUBLISHED]' '--cards-per-server'\t'most cards that a server takes [1, NOT PUBLISHED]' '--hours-per-month'\t'a year of 8,760 hours over twelve [730, own]' '--max-utilisation'\t'share of a measured rate that a plan may use; the published model uses all of it [1, own]' '--attribution'\t'which part of a server counts as cost: all of it, or the allocated cores [cores, NOT PUBLISHED]'
            set values --level --native --sw --hw --device-peak --study --view --crt --key --tls --seconds --resumption --cards --submit-us --html --server-usd --card-usd --server-kw --card-kw --usd-per-kwh --pue --unit-usd-year --rack-units --rack-kw --servers-per-rack --cores-per-server --core-step --months --units-per-server --cards-per-server --hours-per-month --max-utilisation --attribution
            set names 
            test "$previous" = --tls; and printf '1.2\n1.3\n'; and return
            test "$previous" = --attribution; and printf 'whole\ncores\n'; and return
        case 'doctor'
            set offered '-f'\t'the configuration to be served; may be repeated' '--json'\t'findings as JSON' '--fix'\t'shows every command and file of the fixes, and why the rest needs none' '--apply'\t'makes the changes, and writes down what was there before' '--undo'\t'puts back what was there before the first --apply' '--force'\t'with --undo: also what someone else has changed since' '--only'\t'this finding only; may be repeated' '--metrics'\t'Prometheus metrics of the running process: http://..., a file, \'-\' for standard input' '--host'\t'examines a recording, or the host below a directory, instead of this one' '--record'\t'writes a recording of what was read of this host, for --host' '--help'\t'shows this help'
            set values -f --only --metrics --host
            set names 'qat' 'qat down' 'qat reset' 'qat restart' 'qat status' 'qat up'
        case 'lab-setup'
            set offered '--role'\t'which side this host is' '--mode'\t'which engine the server uses [native]; run again to switch' '--proxy'\t'the proxy to set up [penstock]' '--haproxy-cores'\t'processors of the proxy, or of the load generator, as in 0-7' '--nbthread'\t'number of its threads [one for each processor]' '--backend-cores'\t'processors of the backend' '--backend-workers'\t'number of its workers [one for each processor]' '--keep-alive'\t'whether clients\' connections are kept [on]' '--certificate'\t'rsa2048, rsa4096 or ecdsa [rsa2048]' '--port'\t'where the proxy listens [8443]' '--backend-port'\t'where the backend listens [8180]' '--bind-irq-devices'\t'network devices whose interrupts go to --haproxy-cores' '--freq'\t'core frequency' '--uncore'\t'uncore frequency' '--governor'\t'frequency governor' '--dir'\t'where the files go [/var/lib/penstock/lab]' '--only-files'\t'leaves the host\'s settings alone' '-y'\t'makes the changes; without it they are only shown' '--undo'\t'puts everything back to before the first run' '--force'\t'with --undo: also what someone else has changed since' '--host'\t'the host below this directory instead of this one' '--help'\t'shows this help'
            set values --role --mode --proxy --haproxy-cores --nbthread --backend-cores --backend-workers --keep-alive --certificate --port --backend-port --bind-irq-devices --freq --uncore --governor --dir --host
            set names 
            test "$previous" = --role; and printf 'server\nclient\n'; and return
            test "$previous" = --mode; and printf 'native\nsw\nhw\n'; and return
            test "$previous" = --proxy; and printf 'penstock\nhaproxy\n'; and return
            test "$previous" = --keep-alive; and printf 'on\noff\n'; and return
        case 'keywords'
            set offered 
            set values 
            set names 
        case 'completion'
            set offered 
            set values 
            set names 'bash' 'zsh' 'fish'
        case 'man'
            set offered 
            set values 
            set names 'penstock' 'penstock-ctl' 'penstock.cfg'
        case 'help'
            set offered 
            set values 
            set names 
        case '*'
            set offered '-f'\t'reads a configuration file, or the *.cfg files of a directory in order; may be repeated' '--'\t'every argument after it is a configuration file' '-cc'\t'evaluates a condition of .if: exits with 0 when true, 1 when false, 2 on an error' '-c'\t'checks the configuration and exits: 0 when it can start, 1 on errors, 2 without a listener' '-C'\t'changes to this directory first' '-vv'\t'shows version, features, libraries and the crypto engine of this machine' '-v'\t'shows the version' '-V'\t'shows messages again, after -q' '-q'\t'shows no messages, only sets the exit status' '-h'\t'shows this help' '--help'\t'shows this help' '--version'\t'shows the version' '-D'\t'runs in the background' '-Ws'\t'like -W, for a systemd service of type notify: \'daemon\' in the configuration is ignored' '-W'\t'master and worker: SIGUSR2 reloads, SIGUSR1 drains, SIGTERM stops' '-db'\t'stays in the foreground, even where the file says \'daemon\'' '-dW'\t'does not start when there is a warning' '-dD'\t'reports suspicious statements too' '-dV'\t'does not verify the certificates of servers' '-dr'\t'starts even when a server\'s name does not resolve' '-dM'\t'fills memory with this byte (0x50) before use' '-dI'\t'lets the process start programs, as \'insecure-fork-wanted\' does' '-d'\t'stays in the foreground and shows requests and responses' '-n'\t'limits the connections of the process, whatever \'maxconn\' says' '-N'\t'default limit of each proxy' '-m'\t'limits the memory of each process (RLIMIT_DATA)' '-L'\t'name of this peer, the host name by default' '-p'\t'writes the process ids to this file' '-sf'\t'once started, tells these processes to finish (SIGUSR1)' '-st'\t'once started, tells these processes to stop (SIGTERM)' '-x'\t'takes listening sockets over from the process behind this stats socket (expose-fd listeners)' '-S'\t'answers commands to the master on this address; ADDRESS[,mode,600,level,operator]' '-dC'\t'the configuration is checked, not written out' '-dF'\t'there is no fast forwarding to switch off' '-dG'\t'names are resolved by the system\'s resolver or by a resolvers section' '-dR'\t'every worker has its own listening sockets, which needs SO_REUSEPORT' '-dS'\t'splice() is not used' '-de'\t'epoll is the only poller' '-dp'\t'epoll is the only poller' '-dt'\t'there are no traces; \'-d\' shows requests and responses' '-dZ'\t'there is no zero-copy forwarding to switch off' '-dL'\t'the binary loads no libraries of its own but the system\'s C library' '-dK'\t'\'penstock keywords\' lists the keywords'
            set values -f -- -cc -C -n -N -m -L -p -sf -st -x -S
            set names
    end
    contains -- "$previous" $values; and return
    while test $i -le (count $typed)
        if string match -q -- '-*' $typed[$i]
            contains -- $typed[$i] $values; and set i (math $i + 1)
        else
            set before "$before$typed[$i] "
        end
        set i (math $i + 1)
    end
    set before (string replace -r '^watch ' '' -- "$before")
    # Behind the first word of a command to ctl, all belongs to that.
    if test "$at" != ctl; or test -z "$before"
        printf '%s\n' $offered
    end
    for name in $names
        if test (string sub -l (string length -- "$before") -- "$name") = "$before"
            string sub -s (math 1 + (string length -- "$before")) -- "$name" | string replace -r ' .*' ''
        end
    end | sort -u
end
for name in penstock haproxy
    complete -c $name -n 'test (count (commandline -opc)) -eq 1' -f
    complete -c $name -n 'contains -- (commandline -opc)[2] ctl bench completion man' -f
    complete -c $name -a '(__penstock)'
end
