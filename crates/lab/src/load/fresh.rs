//! Names that no connection before has had: where the plan has [`MARK`], each connection has a number of its own.

use super::LoadPlan;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// Stands for the number, in the URL's host, in the server's name and in the values of header fields.
pub(crate) const MARK: &str = "{n}";

/// The run's part of a number: 48 bits by chance, so that the names of one run are none of an earlier run's, which caches still have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run(u64);

impl Run {
    pub(crate) fn new() -> Run {
        Run(RandomState::new().hash_one(0) >> 16)
    }

    /// The plan of a connection that tries the server, before any thread has made one.
    pub(crate) fn sample(self, plan: &LoadPlan) -> LoadPlan {
        // No thread has this number.
        Fresh { run: self, thread: 0xffff, made: Cell::new(0) }.next(plan)
    }
}

/// A thread's numbers.
#[derive(Debug)]
pub(crate) struct Fresh {
    run: Run,
    thread: usize,
    made: Cell<u32>,
}

impl Fresh {
    /// `None` if the plan's connections all have the same names.
    pub(crate) fn new(plan: &LoadPlan, run: Run, thread: usize) -> Option<Fresh> {
        is_wanted(plan).then(|| Fresh { run, thread, made: Cell::new(0) })
    }

    /// The plan with the names of the next connection.
    pub(crate) fn next(&self, plan: &LoadPlan) -> LoadPlan {
        // Always as long: if one of the names can be asked for, all can.
        let number = format!("{:012x}{:04x}{:08x}", self.run.0, self.thread, self.made.get());
        self.made.set(self.made.get().wrapping_add(1));
        let mut plan = plan.clone();
        plan.target.host = plan.target.host.replace(MARK, &number);
        plan.tls.server_name = plan.tls.server_name.map(|name| name.replace(MARK, &number));
        plan.headers.iter_mut().for_each(|(_, value)| *value = value.replace(MARK, &number));
        plan
    }
}

/// Whether each connection has names of its own.
pub(crate) fn is_wanted(plan: &LoadPlan) -> bool {
    let mut places =
        plan.headers.iter().map(|(_, value)| value).chain(&plan.tls.server_name).chain([&plan.target.host]);
    places.any(|text| text.contains(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_comes_twice_over_connections_threads_and_runs() {
        let plan = LoadPlan::new("https://a.{n}.example/".parse().unwrap());
        let mut seen = BTreeSet::new();
        for run in [Run::new(), Run::new()] {
            seen.insert(run.sample(&plan).target.host);
            for thread in 0..2 {
                let fresh = Fresh::new(&plan, run, thread).unwrap();
                seen.extend((0..50).map(|_| fresh.next(&plan).target.host));
            }
        }
        assert_eq!(seen.len(), 2 * (1 + 2 * 50));
        assert!(seen.iter().all(|host| host.len() == "a..example".len() + 24), "{seen:?}");
    }

    #[test]
    fn the_same_number_stands_in_all_places() {
        let mut plan = LoadPlan::new("https://{n}.example/".parse().unwrap());
        plan.tls.server_name = Some("x{n}.test".into());
        plan.headers = vec![("host".into(), "{n}.example:8443".into())];
        let named = Fresh::new(&plan, Run::new(), 3).unwrap().next(&plan);
        let number = named.target.host.strip_suffix(".example").unwrap().to_owned();
        assert_eq!(named.tls.server_name, Some(format!("x{number}.test")));
        assert_eq!(named.headers, [("host".to_owned(), format!("{number}.example:8443"))]);
        plan.target.host = "b.example".into();
        plan.headers.clear();
        assert!(Fresh::new(&plan, Run::new(), 3).is_some());
        plan.tls.server_name = None;
        assert!(Fresh::new(&plan, Run::new(), 3).is_none(), "all connections have the same names");
    }
}
