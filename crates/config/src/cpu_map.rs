//! `cpu-map [auto:]GROUP[/THREADS] CPUS...`, resolved to the CPUs of each thread.

use crate::{
    args::{Args, Parsed},
    model::Global,
    span::Word,
};
use std::collections::BTreeSet;

/// Threads of one group: HAProxy keeps a group in one machine word.
const GROUP_SIZE: u32 = 64;
/// Groups that can have threads.
const GROUPS_MAX: u32 = 4;
/// The most worker threads.
pub(crate) const THREADS_MAX: u32 = GROUP_SIZE * GROUPS_MAX;
/// The highest CPU number of the kernel's affinity masks as HAProxy builds them.
const CPU_MAX: u32 = 1023;

/// Thread `t` of group `g` is thread `(g - 1) * 64 + t`, as HAProxy numbers them.
pub(crate) fn parse(global: &mut Global, args: &mut Args<'_>) -> Parsed {
    let word = args.word("a set of threads")?;
    let (auto, sets) = match word.text.strip_prefix("auto:") {
        Some(sets) => (true, sets),
        None => (false, word.text.as_str()),
    };
    let (groups, threads) = sets.split_once('/').unwrap_or((sets, "all"));
    let by_group = !sets.contains('/');
    let groups = set(args, word, groups)?;
    let threads = set(args, word, threads)?;
    let mut cpus = BTreeSet::new();
    while let Some(word) = args.take() {
        for range in word.text.split(',') {
            cpus.extend(cpu_range(args, word, range)?);
        }
    }
    let cpus: Vec<u32> = cpus.into_iter().collect();
    if !auto {
        for thread in groups.iter().filter(|g| **g <= GROUPS_MAX).flat_map(|g| numbered(*g, &threads)) {
            global.cpu_map.insert(thread, cpus.clone());
        }
        return Ok(());
    }
    // One of the two sets runs along with the CPUs, from the lowest to the highest.
    let running = if by_group { &groups } else { &threads };
    if !by_group && groups.len() > 1 && threads.len() > 1 {
        return args.wrong(word, "'auto:' can run over groups or over threads, not both", "fix one, as in auto:1/1-4");
    }
    let running = if !by_group && threads.len() == 1 { &groups } else { running };
    if running.len() != cpus.len() {
        return args.wrong(
            word,
            format!("'auto:' pairs {} threads with {} CPUs", running.len(), cpus.len()),
            "both sets must have the same size; leave 'auto:' out to bind each thread to all the CPUs",
        );
    }
    for (number, cpu) in running.iter().zip(cpus) {
        let (group, bound) = if std::ptr::eq(running, &groups) {
            (*number, threads.clone())
        } else {
            (groups.first().copied().unwrap_or(1), vec![*number])
        };
        for thread in numbered(group, &bound).filter(|_| group <= GROUPS_MAX) {
            global.cpu_map.insert(thread, vec![cpu]);
        }
    }
    Ok(())
}

fn numbered(group: u32, threads: &[u32]) -> impl Iterator<Item = u32> {
    threads.iter().map(move |thread| (group - 1) * GROUP_SIZE + thread)
}

/// `all`, `odd`, `even`, `3`, `2-5` or `2-`.
fn set(args: &mut Args<'_>, word: &Word, text: &str) -> Parsed<Vec<u32>> {
    let every = 1..=GROUP_SIZE;
    Ok(match text {
        "all" => every.collect(),
        "odd" => every.filter(|n| n % 2 == 1).collect(),
        "even" => every.filter(|n| n % 2 == 0).collect(),
        range => {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let low = args.number_in(word, low, "a thread's number", 1..=GROUP_SIZE)?;
            let high = match high {
                "" => GROUP_SIZE,
                high => args.number_in(word, high, "a thread's number", 1..=GROUP_SIZE)?,
            };
            (low.min(high)..=low.max(high)).collect()
        }
    })
}

fn cpu_range(args: &mut Args<'_>, word: &Word, range: &str) -> Parsed<std::ops::RangeInclusive<u32>> {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let low = args.number_in(word, low, "a CPU's number", 0..=CPU_MAX)?;
    let high = match high {
        // An open range ends where a group of threads would.
        "" => low.max(GROUP_SIZE - 1),
        high => args.number_in(word, high, "a CPU's number", 0..=CPU_MAX)?,
    };
    Ok(low.min(high)..=low.max(high))
}

#[cfg(test)]
mod tests {
    use crate::{Env, Severity, Source, load};
    use std::collections::BTreeMap;

    fn map(lines: &[&str]) -> Result<BTreeMap<u32, Vec<u32>>, String> {
        let text: String = lines.iter().map(|l| format!(" cpu-map {l}\n")).collect();
        let (config, diagnostics) = load([Source::new("c.cfg", format!("global\n{text}").as_bytes())], &Env::default());
        match diagnostics.list.into_iter().find(|d| d.severity == Severity::Error) {
            Some(error) => Err(error.message),
            None => Ok(config.global.cpu_map),
        }
    }

    fn threads(lines: &[&str], wanted: impl IntoIterator<Item = u32>) -> Vec<Vec<u32>> {
        let map = map(lines).expect("a valid map");
        wanted.into_iter().map(|t| map.get(&t).cloned().unwrap_or_default()).collect()
    }

    #[test]
    fn every_form_of_the_manual_gives_its_cpus() {
        assert_eq!(threads(&["1/all 0-1,104-105"], [1, 64, 65]), [vec![0, 1, 104, 105], vec![0, 1, 104, 105], vec![]]);
        assert_eq!(threads(&["1 0-3"], [1, 64]), [vec![0, 1, 2, 3], vec![0, 1, 2, 3]]);
        assert_eq!(threads(&["auto:1/1-4 0-3"], 1..=5), [vec![0], vec![1], vec![2], vec![3], vec![]]);
        assert_eq!(threads(&["auto:1/1-4 0-1 2-3"], 1..=4), [[0], [1], [2], [3]]);
        // Whatever their order, CPUs count from the lowest.
        assert_eq!(threads(&["auto:1/1-4 3 2 1 0"], 1..=4), [[0], [1], [2], [3]]);
        assert_eq!(threads(&["auto:1/even 0-31"], [1, 2, 4, 64]), [vec![], vec![0], vec![1], vec![31]]);
        assert_eq!(threads(&["auto:1/odd 32-63"], [1, 3, 63]), [[32], [33], [63]]);
        assert_eq!(threads(&["auto:1/all 0-63"], [1, 64]), [[0], [63]]);
        assert_eq!(threads(&["1/1- 0-"], [1]), [(0..64).collect::<Vec<_>>()]);
        assert_eq!(threads(&["1/3-2 5-4"], 1..=4), [vec![], vec![4, 5], vec![4, 5], vec![]]);
        // A later line replaces an earlier one where they overlap.
        assert_eq!(threads(&["all 0", "1/2 1"], 1..=3), [[0], [1], [0]]);
        // The second group's threads come after the first's sixty-four.
        assert_eq!(threads(&["2/1 7", "odd 3"], [65, 1, 129]), [[7], [3], [3]]);
        assert_eq!(threads(&["auto:1-4/1 0-3"], [1, 65, 129, 193]), [[0], [1], [2], [3]]);
    }

    #[test]
    fn sets_of_different_sizes_and_numbers_out_of_range_are_refused() {
        assert!(map(&["auto:1/1-4 0"]).unwrap_err().contains("4 threads with 1 CPUs"));
        assert!(map(&["auto:1/1 0-3"]).is_err());
        assert!(map(&["auto:1-2/1-2 0-3"]).is_err());
        assert!(map(&["1/65 0"]).unwrap_err().contains("out of range"));
        assert!(map(&["1/1 1024"]).unwrap_err().contains("out of range"));
        assert!(map(&["1/x 0"]).is_err() && map(&["1/1 0-x"]).is_err() && map(&["1/0 0"]).is_err());
    }
}
