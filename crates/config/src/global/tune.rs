//! `tune.*` and the other performance settings.

use crate::{
    args::{Args, Parsed},
    keyword::{ANYTHING, Keyword, NONE, ONE, between},
    model::{Global, H2Tune},
};

type Entry = Keyword<Global>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("tune.bufsize", ONE, "Size of a buffer in bytes, which also bounds a message's head", |g, a| {
        g.tune.bufsize = a.size("a size", 1024..=1 << 28)? as usize;
        Ok(())
    }),
    Entry::new("tune.cli.max-payload-size", ONE, "Largest payload of a command on a stats socket, in bytes", |g, a| {
        g.tune.cli_max_payload_size = a.size("a size", 1..=1 << 30)? as usize;
        Ok(())
    }),
    Entry::new(
        "tune.maxrewrite",
        ONE,
        "Bytes of a buffer that are kept free for rules that add to the head",
        |g, a| {
            g.tune.maxrewrite = a.size("a size", 0..=1 << 28)? as usize;
            Ok(())
        },
    ),
    Entry::new("tune.http.maxhdr", ONE, "Largest number of header fields in a message", |g, a| {
        g.tune.http_maxhdr = a.number("a number of fields", 1..=32767)?;
        Ok(())
    }),
    Entry::new("tune.http.logurilen", ONE, "Longest request line in a log", |g, a| {
        g.tune.http_logurilen = a.number("a length", 0..=1 << 20)?;
        Ok(())
    }),
    Entry::new("tune.http.cookielen", ONE, "Longest captured cookie", |g, a| {
        g.tune.http_cookielen = a.number("a length", 0..=1 << 20)?;
        Ok(())
    })
    .notice("a captured cookie is cut at the capture's own length"),
    Entry::new("tune.maxaccept", ONE, "Connections accepted at a time", |g, a| {
        let word = a.word("a number of connections")?;
        let count: i64 = a.number_in(word, &word.text, "a number of connections", -1..=i64::from(i32::MAX))?;
        g.tune.maxaccept = u32::try_from(count).ok();
        Ok(())
    })
    .notice("a worker accepts what is waiting"),
    Entry::new("tune.h2.header-table-size", ONE, "Size of the HPACK table in bytes", |g, a| {
        g.tune.h2_header_table_size = a.number("a size", 4096..=65536)?;
        Ok(())
    }),
    Entry::new("tune.h2.initial-window-size", ONE, "Initial window of an HTTP/2 stream in bytes", |g, a| {
        both(g, a, window)
    }),
    Entry::new(
        "tune.h2.fe.initial-window-size",
        ONE,
        "Initial window of a client's HTTP/2 stream, in bytes",
        |g, a| window(&mut g.tune.h2_fe, a),
    ),
    Entry::new(
        "tune.h2.be.initial-window-size",
        ONE,
        "Initial window of an HTTP/2 stream to a server, in bytes",
        |g, a| window(&mut g.tune.h2_be, a),
    ),
    Entry::new(
        "tune.h2.max-concurrent-streams",
        ONE,
        "Largest number of concurrent streams on an HTTP/2 connection",
        |g, a| both(g, a, streams),
    ),
    Entry::new("tune.h2.fe.max-concurrent-streams", ONE, "The same, of clients", |g, a| streams(&mut g.tune.h2_fe, a)),
    Entry::new("tune.h2.be.max-concurrent-streams", ONE, "The same, of servers", |g, a| streams(&mut g.tune.h2_be, a)),
    Entry::new("tune.h2.max-frame-size", ONE, "Largest HTTP/2 frame accepted, in bytes", |g, a| {
        both(g, a, |t, a| {
            t.max_frame_size = a.number("a size", 16384..=16_777_215)?;
            Ok(())
        })
    }),
    Entry::new("tune.ssl.cachesize", ONE, "Number of TLS sessions in the cache", |g, a| {
        g.tune.ssl_cachesize = a.number("a number of sessions", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("tune.ssl.capture-buffer-size", ONE, "Bytes captured of the cipher list in a ClientHello", capture),
    Entry::new("tune.ssl.capture-cipherlist-size", ONE, "Older name of tune.ssl.capture-buffer-size", capture),
    Entry::new("tune.ssl.lifetime", ONE, "How long a TLS session may be resumed", |g, a| {
        g.tune.ssl_lifetime = a.time_in_unit("a time", std::time::Duration::from_secs(1))?;
        Ok(())
    }),
    Entry::new("tune.comp.maxlevel", ONE, "Level of compression, 1 (fastest) to 9 (smallest)", |g, a| {
        g.tune.comp_maxlevel = a.number("a level of compression", 1..=9)?;
        Ok(())
    }),
    Entry::new("tune.idle-pool.shared", ONE, "Idle server connections serve all threads", |g, a| {
        g.tune.idle_pool_shared = a.choice("a switch", SWITCH)?;
        Ok(())
    })
    .notice("idle connections belong to the worker that made them"),
    Entry::new(
        "tune.listener.multi-queue",
        ONE,
        "A busy thread hands new connections to the least busy one",
        |g, a| {
            g.tune.listener_multi_queue = a.choice("a switch", SWITCH)?;
            Ok(())
        },
    ),
    Entry::new("tune.rcvbuf.client", ONE, "Receive buffer of clients' sockets", |g, a| {
        g.tune.rcvbuf_client = socket_buffer(a)?;
        Ok(())
    })
    .notice("the system sizes sockets' buffers by itself"),
    Entry::new("tune.rcvbuf.server", ONE, "Receive buffer of servers' sockets", |g, a| {
        g.tune.rcvbuf_server = socket_buffer(a)?;
        Ok(())
    })
    .notice("the system sizes sockets' buffers by itself"),
    Entry::new("tune.sndbuf.client", ONE, "Send buffer of clients' sockets", |g, a| {
        g.tune.sndbuf_client = socket_buffer(a)?;
        Ok(())
    })
    .notice("the system sizes sockets' buffers by itself"),
    Entry::new("tune.sndbuf.server", ONE, "Send buffer of servers' sockets", |g, a| {
        g.tune.sndbuf_server = socket_buffer(a)?;
        Ok(())
    })
    .notice("the system sizes sockets' buffers by itself"),
];

const SWITCH: &[(&str, bool)] = &[("on", true), ("off", false)];

const BUFFERS: &str = "buffers belong to workers and follow the load";
const POLLER: &str = "the runtime uses epoll";
const LUA: &str = "there are no scripts";
const VARS: &str = "variables are bounded by the message that sets them";
const ZLIB: &str = "the encoder has 15 bits of window and its own memory layout";
const QUIC: &str = "QUIC is not served";
const POOLS: &str = "idle connections are bounded for each server";
const RECORDS: &str = "records follow the flow, from 16 KiB";

/// Settings that are known, but have no counterpart here.
pub(super) const WITHOUT_EFFECT: &[Entry] = &[
    Entry::accepted("busy-polling", NONE, "Polls without sleeping", POLLER).no(),
    Entry::accepted("noepoll", NONE, "Not epoll", POLLER),
    Entry::accepted("nokqueue", NONE, "Not kqueue", POLLER),
    Entry::accepted("noevports", NONE, "Not event ports", POLLER),
    Entry::accepted("nopoll", NONE, "Not poll", POLLER),
    Entry::accepted("nosplice", NONE, "The kernel does not move data between sockets", "it does not"),
    Entry::accepted("nogetaddrinfo", NONE, "Names are resolved the old way", "the system's resolver is used"),
    Entry::accepted("noreuseport", NONE, "One socket for all threads", "each thread has a socket of its own"),
    Entry::accepted("no-memory-trimming", NONE, "Memory is not given back", BUFFERS),
    Entry::accepted("profiling.tasks", between(1, 1), "Measures tasks", "use perf"),
    Entry::accepted("profiling.memory", between(1, 1), "Measures memory", "use perf"),
    Entry::accepted("tune.buffers.limit", ONE, "Most buffers", BUFFERS),
    Entry::accepted("tune.buffers.reserve", ONE, "Buffers kept back", BUFFERS),
    Entry::accepted("tune.bufsize.large", ONE, "Bytes of a large buffer", BUFFERS),
    Entry::accepted("tune.bufsize.small", ONE, "Bytes of a small buffer", BUFFERS),
    Entry::accepted("tune.recv_enough", ONE, "Bytes after which reading stops", BUFFERS),
    Entry::accepted("tune.pipesize", ONE, "Bytes of a pipe", BUFFERS),
    Entry::accepted("tune.memory.hot-size", ONE, "Memory kept by threads", BUFFERS),
    Entry::accepted("tune.rcvbuf.frontend", ONE, "Receive buffer of datagram sockets", BUFFERS),
    Entry::accepted("tune.rcvbuf.backend", ONE, "Receive buffer of datagram sockets", BUFFERS),
    Entry::accepted("tune.sndbuf.frontend", ONE, "Send buffer of datagram sockets", BUFFERS),
    Entry::accepted("tune.sndbuf.backend", ONE, "Send buffer of datagram sockets", BUFFERS),
    Entry::accepted("tune.notsent-lowat.client", ONE, "Unsent bytes in the kernel", BUFFERS),
    Entry::accepted("tune.notsent-lowat.server", ONE, "Unsent bytes in the kernel", BUFFERS),
    Entry::accepted("tune.zlib.memlevel", ONE, "Memory of compression", ZLIB),
    Entry::accepted("tune.zlib.windowsize", ONE, "Window of compression", ZLIB),
    Entry::accepted("tune.disable-fast-forward", NONE, "Data takes the long way", BUFFERS),
    Entry::accepted("tune.disable-zero-copy-forwarding", NONE, "Data is copied", BUFFERS),
    Entry::accepted("tune.applet.zero-copy-forwarding", ONE, "Data is not copied", BUFFERS),
    Entry::accepted("tune.h1.zero-copy-fwd-recv", ONE, "Data is not copied", BUFFERS),
    Entry::accepted("tune.h1.zero-copy-fwd-send", ONE, "Data is not copied", BUFFERS),
    Entry::accepted("tune.h2.zero-copy-fwd-send", ONE, "Data is not copied", BUFFERS),
    Entry::accepted("tune.pt.zero-copy-forwarding", ONE, "Data is not copied", BUFFERS),
    Entry::accepted("tune.events.max-events-at-once", ONE, "Events of a turn", POLLER),
    Entry::accepted("tune.epoll.mask-events", ONE, "Events passed over", POLLER),
    Entry::accepted("tune.fail-alloc", ONE, "Allocations that fail, for tests", "none fails on purpose"),
    Entry::accepted("tune.fd.edge-triggered", ONE, "Edges rather than levels", POLLER),
    Entry::accepted("tune.maxpollevents", ONE, "Events of a turn", POLLER),
    Entry::accepted("tune.runqueue-depth", ONE, "Tasks of a turn", POLLER),
    Entry::accepted("tune.sched.low-latency", ONE, "Short turns", POLLER),
    Entry::accepted("tune.listener.default-shards", ONE, "Sockets of an address", "each thread has its own"),
    Entry::accepted("tune.takeover-other-tg-connections", ONE, "Connections of other groups", POOLS),
    Entry::accepted("tune.defaults.purge", NONE, "Forgets defaults after reading", "they are not kept"),
    Entry::accepted("tune.glitches.kill.cpu-usage", ONE, "When odd clients are closed", "they are closed at once"),
    Entry::accepted("tune.h2.be.glitches-threshold", ONE, "Oddities of a server", "floods are cut at once"),
    Entry::accepted("tune.h2.fe.glitches-threshold", ONE, "Oddities of a client", "floods are cut at once"),
    Entry::accepted("tune.h1.be.glitches-threshold", ONE, "Oddities of a server", "each closes its connection"),
    Entry::accepted("tune.h1.fe.glitches-threshold", ONE, "Oddities of a client", "each closes its connection"),
    Entry::accepted("tune.h2.be.rxbuf", ONE, "Receive buffer of a connection", BUFFERS),
    Entry::accepted("tune.h2.fe.rxbuf", ONE, "Receive buffer of a connection", BUFFERS),
    Entry::accepted("tune.h2.fe.max-total-streams", ONE, "Streams before a connection ends", "there is no end"),
    Entry::accepted("tune.h2.fe.max-rst-at-once", ONE, "Resets of a turn", "floods are cut at once"),
    Entry::accepted("tune.h2.log-errors", ONE, "Which errors are logged", "all are counted"),
    Entry::accepted("tune.idletimer", ONE, "Silence after which a stream counts as idle", BUFFERS),
    Entry::accepted("tune.max-checks-per-thread", ONE, "Checks at a time", "checks are spread over time"),
    Entry::accepted("tune.max-rules-at-once", ONE, "Rules of a turn", "rules run to their end"),
    Entry::accepted("tune.lua.bool-sample-conversion", ONE, "Booleans in scripts", LUA),
    Entry::accepted("tune.lua.burst-timeout", ONE, "Time of a script", LUA),
    Entry::accepted("tune.lua.forced-yield", ONE, "Instructions of a turn", LUA).spare(),
    Entry::accepted("tune.lua.log.loggers", ONE, "Where scripts log", LUA),
    Entry::accepted("tune.lua.log.stderr", ONE, "Scripts log to stderr", LUA),
    Entry::accepted("tune.lua.maxmem", ONE, "Memory of scripts", LUA).spare(),
    Entry::accepted("tune.lua.openlibs", ONE, "Libraries of scripts", LUA),
    Entry::accepted("tune.lua.service-timeout", ONE, "Time of a script", LUA).spare(),
    Entry::accepted("tune.lua.session-timeout", ONE, "Time of a script", LUA).spare(),
    Entry::accepted("tune.lua.task-timeout", ONE, "Time of a script", LUA).spare(),
    Entry::accepted("tune.pattern.cache-size", ONE, "Results of look-ups kept", "look-ups are not cached").spare(),
    Entry::accepted("tune.peers.max-updates-at-once", ONE, "Updates of a turn", "tables are not sent to peers"),
    Entry::accepted("tune.pool-high-fd-ratio", ONE, "When idle connections are closed", POOLS),
    Entry::accepted("tune.pool-low-fd-ratio", ONE, "When idle connections are kept", POOLS),
    Entry::accepted("tune.renice.runtime", ONE, "Priority of the process", "use the service manager"),
    Entry::accepted("tune.renice.startup", ONE, "Priority at start", "use the service manager"),
    Entry::accepted("tune.ring.queues", ONE, "Queues of rings", "logs are not kept in rings"),
    Entry::accepted("tune.stick-counters", ONE, "Counters of a stream", "there are three, sc0 to sc2"),
    Entry::accepted("tune.quic.cc-hystart", ONE, "Congestion control", QUIC),
    Entry::accepted("tune.quic.disable-tx-pacing", NONE, "Sends at once", QUIC),
    Entry::accepted("tune.quic.disable-udp-gso", NONE, "Sends one by one", QUIC),
    Entry::accepted("tune.quic.frontend.conn-tx-buffers.limit", ONE, "Send buffers", QUIC),
    Entry::accepted("tune.quic.frontend.default-max-window-size", ONE, "Window", QUIC),
    Entry::accepted("tune.quic.frontend.glitches-threshold", ONE, "Oddities of a client", QUIC),
    Entry::accepted("tune.quic.frontend.max-data-size", ONE, "Bytes in flight", QUIC),
    Entry::accepted("tune.quic.frontend.max-idle-timeout", ONE, "Longest silence", QUIC),
    Entry::accepted("tune.quic.frontend.max-streams-bidi", ONE, "Streams", QUIC),
    Entry::accepted("tune.quic.frontend.max-tx-mem", ONE, "Memory of sending", QUIC),
    Entry::accepted("tune.quic.frontend.stream-data-ratio", ONE, "Share of a stream", QUIC),
    Entry::accepted("tune.quic.max-frame-loss", ONE, "Losses of a frame", QUIC),
    Entry::accepted("tune.quic.reorder-ratio", ONE, "Order of packets", QUIC),
    Entry::accepted("tune.quic.retry-threshold", ONE, "When tokens are asked for", QUIC),
    Entry::accepted("tune.quic.socket-owner", ONE, "Whose the sockets are", QUIC),
    Entry::accepted("tune.quic.zero-copy-fwd-send", ONE, "Data is not copied", QUIC),
    Entry::accepted("tune.ssl.certificate-compression", ONE, "Certificates are compressed", "they are sent plain"),
    Entry::accepted("tune.ssl.force-private-cache", NONE, "A session cache for each process", "there is one process"),
    Entry::accepted("tune.ssl.hard-maxrecord", ONE, "Largest record", RECORDS),
    Entry::accepted("tune.ssl.maxrecord", ONE, "Largest record of a fresh connection", RECORDS),
    Entry::accepted("tune.ssl.keylog", ONE, "Keeps secrets for debugging", "secrets are not kept"),
    Entry::accepted("tune.ssl.ssl-ctx-cache-size", ONE, "Generated certificates kept", "none is generated"),
    Entry::accepted("tune.vars.check-max-size", ONE, "Memory of checks' variables", VARS).spare(),
    Entry::accepted("tune.vars.global-max-size", ONE, "Memory of all variables", VARS).spare(),
    Entry::accepted("tune.vars.proc-max-size", ONE, "Memory of the process's variables", VARS).spare(),
    Entry::accepted("tune.vars.reqres-max-size", ONE, "Memory of a message's variables", VARS).spare(),
    Entry::accepted("tune.vars.sess-max-size", ONE, "Memory of a session's variables", VARS).spare(),
    Entry::accepted("tune.vars.txn-max-size", ONE, "Memory of a transaction's variables", VARS).spare(),
    Entry::accepted("debug.counters", ONE, "Counts for developers", "use perf"),
    Entry::accepted("trace", ANYTHING, "What is traced", "nothing is traced"),
    Entry::accepted("stress-level", ONE, "Stress, for developers", "none is put on"),
];

type Set = fn(&mut H2Tune, &mut Args<'_>) -> Parsed;

/// Applies a setting to clients and servers alike, by reading its word twice.
fn both(global: &mut Global, args: &mut Args<'_>, set: Set) -> Parsed {
    set(&mut global.tune.h2_fe, args)?;
    args.next = 0;
    set(&mut global.tune.h2_be, args)
}

fn window(tune: &mut H2Tune, args: &mut Args<'_>) -> Parsed {
    tune.initial_window_size = args.number("a size", 0..=i32::MAX as u32)?;
    Ok(())
}

fn streams(tune: &mut H2Tune, args: &mut Args<'_>) -> Parsed {
    tune.max_concurrent_streams = args.number("a number of streams", 0..=i32::MAX as u32)?;
    Ok(())
}

/// Sets the number of bytes of a ClientHello that are captured; 0 captures nothing.
fn capture(global: &mut Global, args: &mut Args<'_>) -> Parsed {
    global.tune.ssl_capture = args.number("a number of bytes", 0..=i32::MAX as u32)?;
    Ok(())
}

/// Parses the size of a socket buffer; `None` (for 0) leaves the system's default.
fn socket_buffer(args: &mut Args<'_>) -> Parsed<Option<u32>> {
    Ok(Some(args.size("a size", 0..=i32::MAX as u64)? as u32).filter(|size| *size > 0))
}
