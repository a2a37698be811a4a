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
    if !plan.kind.has_device() && plan.deflation.is_none() {
        return Ok(Opened { plan: plan.clone(), later: None });
    }
    let demands = plan.deflation.is_some_and(|deflation| deflation.demanded);
    let why = match with_device(plan, workers) {
        Ok(plan) if demands && !compresses(&plan) => {
            return Err(format!("compression by 'hw' cannot use its QuickAssist device: {NO_INSTANCE}"));
        }
        Ok(plan) => {
            say_what_compresses(&plan);
            return Ok(Opened { plan, later: None });
        }
        Err(why) => why,
    };
    let mut without = plan.clone();
    without.without_device();
    let later = (is_successor && why.may_pass()).then(|| Awaited { plan: plan.clone(), workers });
    if later.is_none() && demands {
        return Err(format!(
            "compression by 'hw' cannot use its QuickAssist device: {why}; 'auto' would go on without"
        ));
    }
    match (&later, plan.kind) {
        (None, Kind::Native | Kind::Sw) => eprintln!("penstock: the QuickAssist device is not used: {why}"),
        (Some(_), Kind::Native | Kind::Sw) => eprintln!("penstock: the QuickAssist device is not free yet: {why}"),
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
    let options = Options { compression: plan.deflation.is_some(), ..Options::default() };
    let mut plan = plan.clone();
    let opened = if plan.kind.has_device() {
        Hardware::open(&options, workers)
    } else {
        Hardware::open_for_compression(&options, workers)
    };
    let hardware = match opened {
        // What is wrong with handshakes does not concern compression.
        Err(why) if plan.deflation.is_some() && plan.kind == Kind::HwSw => {
            let hardware = Hardware::open_for_compression(&options, workers).map_err(|_| why.clone())?;
            plan.without_device();
            eprintln!("penstock: the QuickAssist device is for compression alone: {why}; '{}' computes", plan.kind);
            hardware
        }
        opened => opened?,
    };
    plan.hardware = Some(hardware);
    Ok(plan)
}

const NO_INSTANCE: &str = "it has no instance for compression without state that verifies what it did";

fn say_what_compresses(plan: &Plan) {
    if plan.deflation.is_some() && !compresses(plan) {
        eprintln!("penstock: the QuickAssist device does not compress: {NO_INSTANCE}; software does");
    }
}

/// Whether the plan's device has instances for compression.
fn compresses(plan: &Plan) -> bool {
    plan.hardware.as_ref().is_some_and(|hardware| !hardware.device().deflaters().is_empty())
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
                        match plan.kind {
                            Kind::Native | Kind::Sw => eprintln!("penstock: the QuickAssist device is free"),
                            kind => eprintln!("penstock: the QuickAssist device is free: '{kind}' computes"),
                        }
                        say_what_compresses(&plan);
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
