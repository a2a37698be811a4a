//! `program` sections: processes that the master starts beside its worker, and restarts when they die.

use super::{
    patience::{Patience, Verdict},
    processes::Row,
    worker::ended,
};
use crate::{
    accounts,
    say::{alert, notice, warning},
};
use penstock_config::model::ExternalProgram;
use penstock_sys::Signal;
use std::{
    io,
    os::unix::process::CommandExt,
    process::Command,
    time::{Duration, Instant},
};

/// The programs of a master.
#[derive(Default)]
pub struct Programs {
    current: Vec<Program>,
    former: Vec<Process>,
    variables: Vec<(&'static str, String)>,
}

struct Program {
    section: ExternalProgram,
    process: Option<Process>,
    patience: Patience,
    /// The time at which the program is to be started again.
    due: Option<Instant>,
}

struct Process {
    name: String,
    pid: i32,
    started: Instant,
    reloads: u32,
}

impl Programs {
    /// No programs yet; `variables` will be set in their environment.
    pub fn new(variables: Vec<(&'static str, String)>) -> Programs {
        Programs { variables, ..Programs::default() }
    }

    /// Called when the worker of a configuration serves: starts the configuration's programs, and ends previous ones. A
    /// running program without `option start-on-reload` continues.
    pub fn renew(&mut self, sections: &[ExternalProgram]) {
        let mut before = std::mem::take(&mut self.current);
        for section in sections {
            let runs = |program: &Program| program.section.name == section.name && program.process.is_some();
            let kept = before.iter().position(|old| !section.start_on_reload && runs(old));
            let process = kept.and_then(|at| before.swap_remove(at).process);
            let mut program = Program { section: section.clone(), process, patience: Patience::default(), due: None };
            if program.process.is_none() {
                program.start(&self.variables);
            }
            self.current.push(program);
        }
        let former = before.into_iter().filter_map(|program| program.process);
        self.former.extend(former.inspect(|process| drop(penstock_sys::kill(process.pid, Signal::Usr1.number()))));
    }

    /// Counts a reload that the running programs survive.
    pub fn count_reload(&mut self) {
        let current = self.current.iter_mut().filter_map(|program| program.process.as_mut());
        current.chain(&mut self.former).for_each(|process| process.reloads += 1);
    }

    /// Handles the end of a child of the master; returns whether it was one of the programs.
    pub fn reaped(&mut self, pid: i32, code: i32, is_leaving: bool) -> bool {
        if let Some(at) = self.former.iter().position(|process| process.pid == pid) {
            let Process { name, .. } = self.former.swap_remove(at);
            warning(format_args!("Former program '{name}' ({pid}) exited with code {}", ended(code)));
            return true;
        }
        let is_its = |process: &mut Process| process.pid == pid;
        let found = self.current.iter_mut().find_map(|program| Some((program.process.take_if(is_its)?, program)));
        let Some((process, program)) = found else { return false };
        alert(format_args!("Current program '{}' ({pid}) exited with code {}", process.name, ended(code)));
        if !is_leaving {
            program.fail(Some(process.started.elapsed()));
        }
        true
    }

    /// When the next program is to be started again.
    pub fn due(&self) -> Option<Instant> {
        self.current.iter().filter_map(|program| program.due).min()
    }

    /// Starts the programs whose time has come.
    pub fn start_due(&mut self) {
        let now = Instant::now();
        for program in &mut self.current {
            if program.due.take_if(|due| *due <= now).is_some() {
                program.start(&self.variables);
            }
        }
    }

    /// Ends all programs; none is started again.
    pub fn end(&mut self, signal: Signal) {
        for program in &mut self.current {
            program.due = None;
        }
        let current = self.current.iter().filter_map(|program| program.process.as_ref());
        for process in current.chain(&self.former) {
            let _ = penstock_sys::kill(process.pid, signal.number());
        }
    }

    /// Whether no program is running.
    pub fn have_ended(&self) -> bool {
        self.former.is_empty() && self.current.iter().all(|program| program.process.is_none())
    }

    /// Rows for `show proc`: the programs of the configuration, and previous ones.
    pub fn rows(&self) -> (Vec<Row>, Vec<Row>) {
        let row = |process: &Process| Row {
            pid: process.pid.unsigned_abs(),
            kind: process.name.clone(),
            reloads: process.reloads.to_string(),
            uptime: process.started.elapsed(),
            version: "-".into(),
        };
        let current = self.current.iter().filter_map(|program| program.process.as_ref());
        (current.map(row).collect(), self.former.iter().map(row).collect())
    }
}

impl Program {
    fn start(&mut self, variables: &[(&'static str, String)]) {
        let name = &self.section.name;
        match spawn(&self.section, variables) {
            Ok(pid) => {
                notice(format_args!("New program '{name}' ({pid}) forked"));
                self.process = Some(Process { name: name.clone(), pid, started: Instant::now(), reloads: 0 });
            }
            Err(why) => {
                alert(why);
                self.fail(None);
            }
        }
    }

    /// Records that it has ended after running for this long.
    fn fail(&mut self, ran: Option<Duration>) {
        match self.patience.after(ran) {
            Verdict::Replace(pause) => self.due = Some(Instant::now() + pause),
            Verdict::GiveUp(failures) => {
                let name = &self.section.name;
                alert(format_args!("program '{name}' has failed {failures} times in a row: it is left alone"));
            }
        }
    }
}

fn spawn(section: &ExternalProgram, variables: &[(&'static str, String)]) -> Result<i32, String> {
    let (path, arguments) = section.command.split_first().ok_or("a program has no command")?;
    let mut command = Command::new(path);
    command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(group) = &section.group {
        command.gid(accounts::group_id(&group.value)?);
    }
    if let Some(user) = &section.user {
        command.uid(accounts::user_id(&user.value)?);
    }
    // The master blocks signals, which programs do not expect.
    penstock_sys::unblock_signals(&mut command);
    let child: io::Result<_> = command.spawn();
    Ok(child.map_err(|e| format!("Cannot execute {path}: {e}"))?.id() as i32)
}
