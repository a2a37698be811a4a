//! `tune.*` and the other performance settings.

use crate::{
    args::{Args, Parsed},
    keyword::{ANYTHING, Keyword, NONE, ONE},
    model::{CompressionEngine, Global, H2Tune},
    values::{list, number, number_above_zero, percentage, size, socket_owner, switch, switch_or_auto, time},
};
use std::time::Duration;

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
    Entry::new("tune.http.cookielen", ONE, "Largest number of bytes captured of a cookie", |g, a| {
        g.tune.http_cookielen = a.number("a length", 0..=1 << 20)?;
        Ok(())
    })
    .notice("a captured cookie is cut at the capture's own length"),
    Entry::new("tune.maxaccept", ONE, "Largest number of connections accepted in one round", |g, a| {
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
    Entry::new(
        "tune.h2.fe.max-concurrent-streams",
        ONE,
        "Largest number of concurrent streams on a client's HTTP/2 connection",
        |g, a| streams(&mut g.tune.h2_fe, a),
    ),
    Entry::new(
        "tune.h2.be.max-concurrent-streams",
        ONE,
        "Largest number of concurrent streams on a server's HTTP/2 connection",
        |g, a| streams(&mut g.tune.h2_be, a),
    ),
    Entry::new(
        "tune.h2.fe.glitches-threshold",
        ONE,
        "Number of glitches after which a client's HTTP/2 connection is closed",
        |g, a| glitches(&mut g.tune.h2_fe, a),
    ),
    Entry::new(
        "tune.h2.be.glitches-threshold",
        ONE,
        "Number of glitches after which a server's HTTP/2 connection is closed",
        |g, a| glitches(&mut g.tune.h2_be, a),
    ),
    Entry::new("tune.h2.max-frame-size", ONE, "Largest HTTP/2 frame accepted, in bytes", |g, a| {
        both(g, a, |t, a| {
            t.max_frame_size = a.number("a size", 16384..=16_777_215)?;
            Ok(())
        })
    }),
    Entry::new("tune.stick-counters", ONE, "Number of entries that a connection or a request may track", |g, a| {
        g.tune.stick_counters = a.number("a number of counters", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("tune.ssl.cachesize", ONE, "Number of TLS sessions in the cache", |g, a| {
        g.tune.ssl_cachesize = a.number("a number of sessions", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("tune.ssl.ssl-ctx-cache-size", ONE, "Number of generated certificates kept in the cache", |g, a| {
        g.tune.ssl_ctx_cache_size = a.number("a number of certificates", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("tune.ssl.capture-buffer-size", ONE, "Bytes captured of the cipher list in a ClientHello", capture),
    Entry::new("tune.ssl.capture-cipherlist-size", ONE, "Older name of tune.ssl.capture-buffer-size", capture),
    Entry::new("tune.ssl.lifetime", ONE, "How long a TLS session may be resumed", |g, a| {
        g.tune.ssl_lifetime = a.time_in_unit("a time", Duration::from_secs(1))?;
        Ok(())
    }),
    Entry::new(
        "tune.comp.maxlevel",
        ONE,
        "Level of compression, 1 (fastest) to 9 (smallest); that of br is 4 at most",
        |g, a| {
            g.tune.comp_maxlevel = a.number("a level of compression", 1..=9)?;
            Ok(())
        },
    ),
    Entry::new(
        "tune.compression.engine",
        ONE,
        "What compresses: software (the default), a QuickAssist device (hw), or one where it pays (auto)",
        |g, a| {
            let span = a.peek().map_or(a.span, |word| word.span);
            let names = [CompressionEngine::Software, CompressionEngine::Hw, CompressionEngine::Auto]
                .map(|engine| (engine.name(), engine));
            let value = a.choice("what compresses", &names)?;
            g.tune.compression_engine = Some(crate::span::Spanned { value, span });
            Ok(())
        },
    ),
    Entry::new("tune.idle-pool.shared", ONE, "Lets all threads share idle server connections", |g, a| {
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
    }),
    Entry::new("tune.rcvbuf.server", ONE, "Receive buffer of servers' sockets", |g, a| {
        g.tune.rcvbuf_server = socket_buffer(a)?;
        Ok(())
    }),
    Entry::new("tune.sndbuf.client", ONE, "Send buffer of clients' sockets", |g, a| {
        g.tune.sndbuf_client = socket_buffer(a)?;
        Ok(())
    }),
    Entry::new("tune.sndbuf.server", ONE, "Send buffer of servers' sockets", |g, a| {
        g.tune.sndbuf_server = socket_buffer(a)?;
        Ok(())
    }),
];

const SWITCH: &[(&str, bool)] = &[("on", true), ("off", false)];

/// The longest `tune.idletimer`, as in HAProxy.
const IDLE_MAX: Duration = Duration::from_millis(65535);

const BUFFERS: &str = "buffers belong to workers and follow the load";
const POLLER: &str = "the runtime uses epoll";
const LUA: &str = "Lua is not supported";
const VARS: &str = "a variable is at most as long as tune.bufsize, and the rules say how many there are";
const ZLIB: &str = "the encoder has 15 bits of window and its own memory layout";
const QUIC: &str = "QUIC is not served";
const POOLS: &str = "idle connections are bounded for each server";
const RECORDS: &str = "records follow the flow, from 16 KiB";

/// Settings that are known, but have no counterpart here.
pub(super) const WITHOUT_EFFECT: &[Entry] = &[
    Entry::accepted("busy-polling", NONE, "Busy polling: threads spin instead of sleeping", POLLER).no(),
    Entry::accepted("noepoll", NONE, "Does not poll with epoll", POLLER),
    Entry::accepted("nokqueue", NONE, "Does not poll with kqueue", POLLER),
    Entry::accepted("noevports", NONE, "Does not poll with event ports", POLLER),
    Entry::accepted("nopoll", NONE, "Does not poll with poll()", POLLER),
    Entry::accepted(
        "nosplice",
        NONE,
        "Disables splicing of data between sockets",
        "the kernel never moves data between sockets here",
    ),
    Entry::accepted("nogetaddrinfo", NONE, "Resolves names without getaddrinfo()", "the system's resolver is used"),
    Entry::accepted(
        "noreuseport",
        NONE,
        "Uses one listening socket, without SO_REUSEPORT",
        "each thread has a socket of its own",
    ),
    Entry::accepted("no-memory-trimming", NONE, "Keeps unused memory instead of returning it to the system", BUFFERS),
    Entry::new("profiling.tasks", ONE, "Profiles the CPU time of tasks", switch_or_auto).notice("use perf"),
    Entry::new("profiling.memory", ONE, "Profiles memory use", switch).notice("use perf"),
    Entry::new("tune.buffers.limit", ONE, "Largest number of buffers", number).notice(BUFFERS),
    Entry::new("tune.buffers.reserve", ONE, "Number of buffers held in reserve", number).notice(BUFFERS),
    Entry::accepted("tune.bufsize.large", ONE, "Size of a large buffer, in bytes", BUFFERS),
    Entry::accepted("tune.bufsize.small", ONE, "Size of a small buffer, in bytes", BUFFERS),
    Entry::accepted("tune.recv_enough", ONE, "Number of bytes after which a read is not repeated", BUFFERS),
    Entry::accepted("tune.pipesize", ONE, "Size of a pipe, in bytes", BUFFERS),
    Entry::new("tune.memory.hot-size", ONE, "Memory that each thread keeps in its local cache", number_above_zero)
        .notice(BUFFERS),
    Entry::new("tune.rcvbuf.frontend", ONE, "Receive buffer of datagram sockets", number_above_zero).notice(BUFFERS),
    Entry::new("tune.rcvbuf.backend", ONE, "Receive buffer of datagram sockets", number_above_zero).notice(BUFFERS),
    Entry::new("tune.sndbuf.frontend", ONE, "Send buffer of datagram sockets", number_above_zero).notice(BUFFERS),
    Entry::new("tune.sndbuf.backend", ONE, "Send buffer of datagram sockets", number_above_zero).notice(BUFFERS),
    Entry::accepted("tune.notsent-lowat.client", ONE, "Unsent bytes that may wait in the kernel", BUFFERS),
    Entry::accepted("tune.notsent-lowat.server", ONE, "Unsent bytes that may wait in the kernel", BUFFERS),
    Entry::accepted("tune.zlib.memlevel", ONE, "Memory level of the compressor", ZLIB),
    Entry::accepted("tune.zlib.windowsize", ONE, "Window size of the compressor", ZLIB),
    Entry::accepted("tune.disable-fast-forward", NONE, "Disables fast forwarding", BUFFERS),
    Entry::accepted("tune.disable-zero-copy-forwarding", NONE, "Disables forwarding without copies", BUFFERS),
    Entry::new("tune.applet.zero-copy-forwarding", ONE, "Forwards data without copying it", switch).notice(BUFFERS),
    Entry::new("tune.h1.zero-copy-fwd-recv", ONE, "Forwards data without copying it", switch).notice(BUFFERS),
    Entry::new("tune.h1.zero-copy-fwd-send", ONE, "Forwards data without copying it", switch).notice(BUFFERS),
    Entry::new("tune.h2.zero-copy-fwd-send", ONE, "Forwards data without copying it", switch).notice(BUFFERS),
    Entry::new("tune.pt.zero-copy-forwarding", ONE, "Forwards data without copying it", switch).notice(BUFFERS),
    Entry::new(
        "tune.events.max-events-at-once",
        ONE,
        "Largest number of events handled in one polling round",
        |_, a| a.number("a number", 1..=10000).map(drop),
    )
    .notice(POLLER),
    Entry::new("tune.epoll.mask-events", ONE, "Epoll events that are ignored", |_, a| {
        list(a, "an event of epoll", &["err", "hup", "rdhup"]).map(drop)
    })
    .notice(POLLER),
    Entry::new("tune.fail-alloc", ONE, "Percentage of allocations that fail, for tests", percentage)
        .notice("no allocation fails on purpose"),
    Entry::new("tune.fd.edge-triggered", ONE, "Uses edge-triggered polling", switch).notice(POLLER),
    Entry::accepted("tune.maxpollevents", ONE, "Largest number of events handled in one polling round", POLLER),
    Entry::accepted("tune.runqueue-depth", ONE, "Largest number of tasks run in one round", POLLER),
    Entry::new("tune.sched.low-latency", ONE, "Schedules tasks for low latency", switch).notice(POLLER),
    Entry::new("tune.listener.default-shards", ONE, "Default number of listening sockets for each address", |_, a| {
        a.choice("a way to share", &[("by-process", ()), ("by-thread", ()), ("by-group", ())])
    })
    .notice("each thread has its own"),
    Entry::accepted(
        "tune.takeover-other-tg-connections",
        ONE,
        "Takes over idle connections of other thread groups",
        POOLS,
    ),
    Entry::accepted(
        "tune.defaults.purge",
        NONE,
        "Frees unused 'defaults' sections after startup",
        "'defaults' sections are always freed",
    ),
    Entry::accepted(
        "tune.glitches.kill.cpu-usage",
        ONE,
        "CPU use above which clients with too many glitches are closed",
        "such clients are closed at once",
    ),
    Entry::accepted(
        "tune.h1.be.glitches-threshold",
        ONE,
        "Number of glitches after which a server's connection is closed",
        "each closes its connection",
    ),
    Entry::accepted(
        "tune.h1.fe.glitches-threshold",
        ONE,
        "Number of glitches after which a client's connection is closed",
        "each closes its connection",
    ),
    Entry::accepted("tune.h2.be.rxbuf", ONE, "Receive buffer of an HTTP/2 connection", BUFFERS),
    Entry::accepted("tune.h2.fe.rxbuf", ONE, "Receive buffer of an HTTP/2 connection", BUFFERS),
    Entry::new("tune.h2.fe.max-total-streams", ONE, "Number of streams after which a connection is closed", |g, a| {
        g.tune.h2_fe_max_total_streams = a.number("a number of streams", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::accepted(
        "tune.h2.fe.max-rst-at-once",
        ONE,
        "Largest number of stream resets handled in one round",
        "floods are cut at once",
    ),
    Entry::accepted("tune.h2.log-errors", ONE, "HTTP/2 errors that are logged", "every error is counted"),
    Entry::new("tune.idletimer", ONE, "Inactivity after which a stream counts as idle", |_, a| {
        let word = a.peek();
        match (a.time("a time")?, word) {
            (time, Some(word)) if time > IDLE_MAX => {
                a.wrong(word, format!("'{}' is too long for a time of inactivity", word.text), "at most 65535ms")
            }
            _ => Ok(()),
        }
    })
    .notice(BUFFERS),
    Entry::accepted(
        "tune.max-checks-per-thread",
        ONE,
        "Largest number of health checks that a thread runs at once",
        "checks are spread over time",
    ),
    Entry::accepted(
        "tune.max-rules-at-once",
        ONE,
        "Largest number of rules evaluated in one round",
        "rules run to their end",
    ),
    Entry::accepted("tune.lua.bool-sample-conversion", ONE, "How Lua sees boolean samples", LUA),
    Entry::new("tune.lua.burst-timeout", ONE, "Time that a Lua script may take", time).notice(LUA),
    Entry::new("tune.lua.forced-yield", ONE, "Number of Lua instructions before a script must yield", number)
        .notice(LUA)
        .spare(),
    Entry::new("tune.lua.log.loggers", ONE, "Where Lua's log messages go", switch).notice(LUA),
    Entry::new("tune.lua.log.stderr", ONE, "Whether Lua's log messages go to stderr as well", switch_or_auto)
        .notice(LUA),
    Entry::new("tune.lua.maxmem", ONE, "Memory that Lua scripts may use", number).notice(LUA).spare(),
    Entry::accepted("tune.lua.openlibs", ONE, "Libraries that Lua scripts may open", LUA),
    Entry::new("tune.lua.service-timeout", ONE, "Time that a Lua script may take", time).notice(LUA).spare(),
    Entry::new("tune.lua.session-timeout", ONE, "Time that a Lua script may take", time).notice(LUA).spare(),
    Entry::new("tune.lua.task-timeout", ONE, "Time that a Lua script may take", time).notice(LUA).spare(),
    Entry::new("tune.pattern.cache-size", ONE, "Number of pattern look-ups whose results are cached", number)
        .notice("look-ups are not cached")
        .spare(),
    Entry::new(
        "tune.peers.max-updates-at-once",
        ONE,
        "Largest number of updates sent to a peer in one round",
        |g, a| {
            g.tune.peers_max_updates = a.number("a number of updates", 1..=i32::MAX as u32)?;
            Ok(())
        },
    )
    .spare(),
    Entry::new(
        "tune.pool-high-fd-ratio",
        ONE,
        "Share of file descriptors in use above which idle connections are closed",
        percentage,
    )
    .notice(POOLS),
    Entry::new(
        "tune.pool-low-fd-ratio",
        ONE,
        "Share of file descriptors in use below which idle connections are kept",
        percentage,
    )
    .notice(POOLS),
    Entry::accepted(
        "tune.renice.runtime",
        ONE,
        "Scheduling priority of the running process",
        "use the service manager",
    ),
    Entry::accepted("tune.renice.startup", ONE, "Scheduling priority during startup", "use the service manager"),
    Entry::accepted("tune.ring.queues", ONE, "Number of queues of a ring", "each ring has one"),
    Entry::new("tune.quic.cc-hystart", ONE, "Congestion control", switch).notice(QUIC),
    Entry::accepted("tune.quic.disable-tx-pacing", NONE, "Disables pacing of outgoing packets", QUIC),
    Entry::accepted("tune.quic.disable-udp-gso", NONE, "Disables segmentation offload of UDP", QUIC),
    Entry::new("tune.quic.frontend.conn-tx-buffers.limit", ONE, "Send buffers of a QUIC connection", number_above_zero)
        .notice(QUIC),
    Entry::accepted(
        "tune.quic.frontend.default-max-window-size",
        ONE,
        "Default congestion window of a QUIC connection",
        QUIC,
    ),
    Entry::accepted(
        "tune.quic.frontend.glitches-threshold",
        ONE,
        "Number of glitches after which a client's connection is closed",
        QUIC,
    ),
    Entry::accepted("tune.quic.frontend.max-data-size", ONE, "Bytes of a QUIC connection that may be in flight", QUIC),
    Entry::new("tune.quic.frontend.max-idle-timeout", ONE, "Longest inactivity of a connection", time).notice(QUIC),
    Entry::new(
        "tune.quic.frontend.max-streams-bidi",
        ONE,
        "Number of concurrent bidirectional streams of a QUIC connection",
        number_above_zero,
    )
    .notice(QUIC),
    Entry::accepted("tune.quic.frontend.max-tx-mem", ONE, "Memory that QUIC may use to send", QUIC),
    Entry::accepted(
        "tune.quic.frontend.stream-data-ratio",
        ONE,
        "Share of a connection's window that one stream may use",
        QUIC,
    ),
    Entry::new("tune.quic.max-frame-loss", ONE, "Number of times a QUIC frame may be lost", number_above_zero)
        .notice(QUIC),
    Entry::new(
        "tune.quic.reorder-ratio",
        ONE,
        "Reordering that QUIC accepts before it counts a packet as lost",
        |_, a| a.number("a percentage", 1..=100).map(drop),
    )
    .notice(QUIC),
    Entry::new(
        "tune.quic.retry-threshold",
        ONE,
        "Number of half-open QUIC connections above which clients must prove their address",
        number_above_zero,
    )
    .notice(QUIC),
    Entry::new("tune.quic.socket-owner", ONE, "Whether each QUIC connection has a socket of its own", socket_owner)
        .notice(QUIC),
    Entry::new("tune.quic.zero-copy-fwd-send", ONE, "Forwards data without copying it", switch).notice(QUIC),
    Entry::accepted(
        "tune.ssl.certificate-compression",
        ONE,
        "Compresses certificates in the handshake",
        "certificates are sent uncompressed",
    ),
    Entry::accepted(
        "tune.ssl.force-private-cache",
        NONE,
        "Gives each process a TLS session cache of its own",
        "there is one process",
    ),
    Entry::new("tune.ssl.hard-maxrecord", ONE, "Largest TLS record", number).notice(RECORDS),
    Entry::new("tune.ssl.maxrecord", ONE, "Largest TLS record on a new connection", number).notice(RECORDS),
    Entry::new("tune.ssl.keylog", ONE, "Keeps TLS secrets for debugging", switch).notice("secrets are not kept"),
    Entry::new("tune.vars.check-max-size", ONE, "Memory that the variables of a health check may use", size)
        .notice(VARS)
        .spare(),
    Entry::new("tune.vars.global-max-size", ONE, "Memory that all variables may use", size).notice(VARS).spare(),
    Entry::new("tune.vars.proc-max-size", ONE, "Memory that the process's variables may use", size)
        .notice(VARS)
        .spare(),
    Entry::new("tune.vars.reqres-max-size", ONE, "Memory that the variables of a message may use", size)
        .notice(VARS)
        .spare(),
    Entry::new("tune.vars.sess-max-size", ONE, "Memory that the variables of a session may use", size)
        .notice(VARS)
        .spare(),
    Entry::new("tune.vars.txn-max-size", ONE, "Memory that the variables of a transaction may use", size)
        .notice(VARS)
        .spare(),
    Entry::accepted("debug.counters", ONE, "Event counters for developers", "use perf"),
    Entry::accepted("trace", ANYTHING, "Events that are traced", "nothing is traced"),
    Entry::accepted("stress-level", ONE, "Level of stress for developers' tests", "no stress is applied"),
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

fn glitches(tune: &mut H2Tune, args: &mut Args<'_>) -> Parsed {
    tune.glitches_threshold = args.number("a number of glitches", 0..=i32::MAX as u32)?;
    Ok(())
}

/// Sets the number of bytes of a ClientHello that are captured; 0 captures nothing.
fn capture(global: &mut Global, args: &mut Args<'_>) -> Parsed {
    args.only_once(global.tune.ssl_capture.is_some())?;
    global.tune.ssl_capture = Some(args.number("a number of bytes", 0..=i32::MAX as u32)?);
    Ok(())
}

/// Parses the size of a socket buffer; `None` (for 0) leaves the system's default.
fn socket_buffer(args: &mut Args<'_>) -> Parsed<Option<u32>> {
    Ok(Some(args.size("a size", 0..=i32::MAX as u64)? as u32).filter(|size| *size > 0))
}
