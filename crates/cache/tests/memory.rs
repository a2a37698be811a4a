//! What a cache says it takes is what it takes: in a process of its own, since the whole process is measured.

use penstock_cache::{Cache, CacheLimits};
use penstock_http::{Framing, RequestHead, ResponseHead, Version};

#[test]
fn small_entries_take_no_more_than_they_count_for() {
    const TOTAL: usize = 48 << 20;
    let limits = CacheLimits {
        total: TOTAL,
        object: TOTAL / 256,
        age_s: 60,
        vary: false,
        variants: 10,
        ranges: true,
        collapse_ms: 0,
    };
    let mut head = ResponseHead::from_status(200);
    for (name, value) in [("cache-control", "max-age=50"), ("content-type", "text/plain"), ("etag", "\"x\"")] {
        head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    for length in [0, 1, 100, 5000] {
        let cache = Cache::new("c", limits);
        let before = memory();
        for number in 0..TOTAL / (600 + length) + 5000 {
            let target = format!("/{number}");
            let mut request = RequestHead::from_parts(b"GET", target.as_bytes(), Version::Http11).unwrap();
            request.fields.append(b"host", b"h").unwrap();
            let query = cache.query(&request, b"GET", false).unwrap();
            let mut storing = cache.store(&query, &head, Framing::Length(length as u64), 0).unwrap();
            assert!(storing.append(&vec![b'x'; length]));
            storing.complete(None);
        }
        let (grown, used, entries) = (memory().saturating_sub(before), cache.used(), cache.entries().count());
        assert!(used > TOTAL / 100 * 99, "{length}: it is full");
        // What earlier caches have left to the allocator is used again, so that the first measures most.
        assert!(grown < TOTAL / 100 * 105, "{length}: {grown} bytes for {used} counted, {entries} entries");
        eprintln!("{length}: {grown} bytes for {used} counted, {entries} entries, {} each", grown / entries);
    }
}

/// The memory of this process in bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
