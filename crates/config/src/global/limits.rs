//! Limits of the whole process.

use crate::{
    keyword::{Keyword, NONE, ONE},
    model::Global,
};

type Entry = Keyword<Global>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("maxconn", ONE, "Largest number of concurrent connections of the process", |g, a| {
        g.maxconn = Some(a.number("a number of connections", 0..=i32::MAX as u32)?);
        Ok(())
    }),
    Entry::new("ulimit-n", ONE, "Number of file descriptors that the process may open", |g, a| {
        g.ulimit_n = Some(a.number("a number of descriptors", 0..=u64::from(u32::MAX))?);
        Ok(())
    }),
    Entry::new("strict-limits", NONE, "The process does not start if a limit cannot be set", |g, a| {
        g.strict_limits = a.on();
        Ok(())
    })
    .no(),
    Entry::new("spread-checks", ONE, "Percentage by which the times of health checks are randomised", |g, a| {
        g.spread_checks = a.number("a percentage", 0..=50)?;
        Ok(())
    }),
    Entry::new("max-spread-checks", ONE, "Longest time by which checks are spread", |g, a| {
        g.max_spread_checks = Some(a.time("a time")?);
        Ok(())
    }),
    Entry::new(
        "fd-hard-limit",
        ONE,
        "Upper limit of the file descriptors that 'maxconn' is calculated from",
        |g, a| {
            g.fd_hard_limit = Some(a.number("a number of descriptors", 0..=i32::MAX as u32)?).filter(|most| *most > 0);
            Ok(())
        },
    ),
    Entry::accepted("maxsslconn", ONE, "Largest number of concurrent TLS connections", "'maxconn' bounds them all"),
    Entry::new("maxconnrate", ONE, "Largest number of new connections per second", |g, a| {
        g.maxconnrate = a.number("a number a second", 0..=u32::MAX)?;
        Ok(())
    }),
    Entry::new("maxsessrate", ONE, "Largest number of new sessions per second", |g, a| {
        g.maxsessrate = a.number("a number a second", 0..=u32::MAX)?;
        Ok(())
    }),
    Entry::new("maxsslrate", ONE, "Largest number of TLS handshakes per second", |g, a| {
        g.maxsslrate = a.number("a number a second", 0..=u32::MAX)?;
        Ok(())
    }),
    Entry::new("maxcomprate", ONE, "Most kilobytes per second that are compressed; 0 for no limit", |g, a| {
        g.maxcomprate = a.number("a number of kilobytes per second", 0..=u32::MAX)?;
        Ok(())
    }),
    Entry::new("maxcompcpuusage", ONE, "Share of CPU time, in percent, above which less is compressed", |g, a| {
        let percent = a.number("a percentage", 0..=100)?;
        g.maxcompcpuusage = (percent < 100).then_some(percent);
        Ok(())
    }),
    Entry::new("maxzlibmem", ONE, "Most megabytes of memory for compression; 0 for no limit", |g, a| {
        g.maxzlibmem = a.number("a number of megabytes", 0..=u32::MAX)?;
        Ok(())
    }),
    Entry::accepted(
        "maxpipes",
        ONE,
        "Largest number of pipes used for splicing",
        "data passes through the worker's own buffers",
    ),
];
