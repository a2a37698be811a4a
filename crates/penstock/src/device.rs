//! The device that an engine uses: opened before there are workers, or taken over from the previous process.

use penstock_engine::{
    Plan,
    hw::{Hardware, Options, Unusable},
    plan::Kind,
};
use penstock_proxy::{Handle, State};
use std::{thread, time::Duration};

/// What workers start with.
pub struct Opened {
    /// The initial plan.
    pub plan: Plan,
    /// The plan to use once the previous process has released the device.
    pub later: Option<Awaited>,
}

/// A device that another process still uses.
pub struct Awaited {
    plan: Plan,
    workers: usize,
}

/// Opens the device that `plan` needs, in the process that will serve, while it may still open devices and lock memory.
/// A successor starts without the device that its predecessor uses, and takes it when that is released: at the latest
/// when the predecessor drains.
///
/// # Errors
///
/// If it cannot be used, and no other engine may replace it.
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

/// The delay before the first try, which is made when the previous process has been told to drain; and the limit of
/// later delays.
const FIRST: Duration = Duration::from_millis(250);
const MOST: Duration = Duration::from_secs(30);

impl Awaited {
    /// Tries repeatedly, until the device is available, can never be, or the process ends.
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
