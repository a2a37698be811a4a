//! The device that a plan is for: opened before there are workers, or taken over from the process that serves until then.

use penstock_engine::{
    Plan,
    hw::{Hardware, Options, Unusable},
    plan::Kind,
};
use penstock_proxy::{Handle, State};
use std::{thread, time::Duration};

/// What workers begin with.
pub struct Opened {
    /// What computes now.
    pub plan: Plan,
    /// What shall, once the process before this one has let go of the device.
    pub later: Option<Awaited>,
}

/// A device that another process still has.
pub struct Awaited {
    plan: Plan,
    workers: usize,
}

/// Opens the device that `plan` is for: in the process that will serve, while it may still open devices and lock memory. A successor
/// serves without one that its predecessor has, and takes it when that lets go: at the latest when it drains.
///
/// # Errors
/// It cannot be used, and nothing may stand in for it.
pub fn open(plan: &Plan, workers: usize, is_successor: bool) -> Result<Opened, String> {
    if !plan.kind.has_device() {
        return Ok(Opened { plan: plan.clone(), later: None });
    }
    let why = match with_device(plan, workers) {
        Ok(plan) => return Ok(Opened { plan, later: None }),
        Err(why) => why,
    };
    let mut without = plan.clone();
    without.without_device();
    let later = (is_successor && why.may_pass()).then(|| Awaited { plan: plan.clone(), workers });
    match (&later, plan.kind) {
        (None, Kind::Hw) => {
            return Err(format!(
                "the engine 'hw' cannot use its QuickAssist device: {why}; 'hw+sw' would go on without"
            ));
        }
        (None, _) => eprintln!("penstock: the QuickAssist device is not used: {why}; '{}' computes", without.kind),
        (Some(_), _) => {
            eprintln!(
                "penstock: the QuickAssist device is not free yet: {why}; until it is, '{}' computes",
                without.kind
            );
        }
    }
    Ok(Opened { plan: without, later })
}

fn with_device(plan: &Plan, workers: usize) -> Result<Plan, Unusable> {
    let hardware = Hardware::open(&Options::default(), workers)?;
    Ok(Plan { hardware: Some(hardware), ..plan.clone() })
}

/// Until the first try, which comes when the process before this one has been told to drain, and at most between tries.
const FIRST: Duration = Duration::from_millis(250);
const MOST: Duration = Duration::from_secs(30);

impl Awaited {
    /// Tries from time to time, until it is there, can never be, or the process ends.
    pub fn in_background(self, handle: Handle) {
        let wait = move || {
            let mut pause = FIRST;
            loop {
                thread::sleep(pause);
                if handle.state() != State::Running {
                    return;
                }
                match with_device(&self.plan, self.workers) {
                    Ok(plan) => {
                        eprintln!("penstock: the QuickAssist device is free: '{}' computes", plan.kind);
                        return handle.change_engine(&plan);
                    }
                    Err(why) if why.may_pass() => pause = (pause * 2).min(MOST),
                    Err(why) => return eprintln!("penstock: the QuickAssist device is not used: {why}"),
                }
            }
        };
        if let Err(why) = thread::Builder::new().name("device".to_owned()).spawn(wait) {
            eprintln!("penstock: nobody waits for the QuickAssist device: {why}");
        }
    }
}
