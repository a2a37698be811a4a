//! `show proc`: the master, its workers and its programs, in HAProxy's columns, which clients parse by their width.

use std::{
    fmt::{self, Display},
    time::Duration,
};

/// A row of the list: one process.
pub struct Row {
    pub pid: u32,
    /// `master`, `worker`, or the name of a program.
    pub kind: String,
    pub reloads: String,
    pub uptime: Duration,
    pub version: String,
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.uptime.as_secs();
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        let uptime = format!("{days}d{hours:02}h{minutes:02}m{:02}s", seconds % 60);
        columns(f, [&self.pid.to_string(), &self.kind, &self.reloads, &uptime, &self.version])
    }
}

/// All processes.
pub struct Processes {
    pub master: Row,
    pub workers: Vec<Row>,
    pub old_workers: Vec<Row>,
    pub programs: Vec<Row>,
    pub old_programs: Vec<Row>,
}

impl Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        columns(f, ["#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"])?;
        self.master.fmt(f)?;
        let parts = [
            ("workers", &self.workers),
            ("old workers", &self.old_workers),
            ("programs", &self.programs),
            ("old programs", &self.old_programs),
        ];
        for (heading, rows) in parts {
            if !rows.is_empty() || matches!(heading, "workers" | "programs") {
                writeln!(f, "# {heading}")?;
                rows.iter().try_for_each(|row| row.fmt(f))?;
            }
        }
        Ok(())
    }
}

fn columns(f: &mut fmt::Formatter<'_>, cells: [&str; 5]) -> fmt::Result {
    let [pid, kind, reloads, uptime, version] = cells;
    writeln!(f, "{pid:<15} {kind:<15} {reloads:<15} {uptime:<15} {version:<15}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_manual() {
        let row = |pid, kind: &str, reloads: &str, seconds, version: &str| Row {
            pid,
            kind: kind.into(),
            reloads: reloads.into(),
            uptime: Duration::from_secs(seconds),
            version: version.into(),
        };
        let processes = Processes {
            master: row(1162, "master", "5 [failed: 0]", 127, "2.5-dev13"),
            workers: vec![row(1271, "worker", "1", 0, "2.5-dev13")],
            old_workers: vec![row(1233, "worker", "3", 90_043, "2.0-dev3-6019f6-289")],
            programs: vec![row(1244, "foo", "0", 0, "-")],
            old_programs: Vec::new(),
        };
        let wanted = "\
#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
1162            master          5 [failed: 0]   0d00h02m07s     2.5-dev13      \n\
# workers\n\
1271            worker          1               0d00h00m00s     2.5-dev13      \n\
# old workers\n\
1233            worker          3               1d01h00m43s     2.0-dev3-6019f6-289\n\
# programs\n\
1244            foo             0               0d00h00m00s     -              \n";
        assert_eq!(processes.to_string(), wanted);
    }
}
