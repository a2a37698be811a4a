//! Which engine a process runs, decided once from what was asked for and what the machine has.

use crate::{
    Both, Classes, Settings,
    hw::{self, Compressor, Deflation, Hardware, Hw},
    policy::Limits,
    sw::{Costs, Sw},
    worker,
};
use penstock_lanes::Lanes;
use std::{fmt, sync::Arc, time::Duration};

/// What a configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// `native`: the library alone, one operation at a time.
    Native,
    /// `sw`: lanes.
    Sw,
    /// `hw`: a device is required.
    Hw,
    /// `hw+sw`: a device and lanes, as far as there are any.
    HwSw,
    /// `auto`: the best of what the machine has.
    #[default]
    Auto,
}

impl Asked {
    /// The engine that a word of `tune.crypto.engine` names.
    pub fn from_name(name: &str) -> Option<Asked> {
        Some(match name {
            "native" => Asked::Native,
            "sw" => Asked::Sw,
            "hw" => Asked::Hw,
            "hw+sw" => Asked::HwSw,
            "auto" => Asked::Auto,
            _ => return None,
        })
    }
}

/// The kind of engine that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The library, inline, one operation at a time.
    Native,
    /// Lanes, in batches of up to eight.
    Sw,
    /// A device; the library does what the device cannot.
    Hw,
    /// A device together with lanes or the library: whichever is predicted to answer first.
    HwSw,
}

impl Kind {
    /// Whether this kind drives a device.
    pub fn has_device(self) -> bool {
        matches!(self, Kind::Hw | Kind::HwSw)
    }

    /// The best kind that needs no device.
    pub fn software(lanes: Lanes) -> Kind {
        if lanes.is_accelerated() { Kind::Sw } else { Kind::Native }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Native => "native",
            Kind::Sw => "sw",
            Kind::Hw => "hw",
            Kind::HwSw => "hw+sw",
        })
    }
}

/// What was asked for but is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A device was preferred; other engines stand in.
    Device,
    /// A device was required; nothing stands in for it.
    DemandedDevice,
    /// The processor has no AVX-512 IFMA: lanes would be slower than the library.
    Ifma,
}

/// The kind of engine for what was asked, with or without a device, and what was missing.
pub fn choose(asked: Asked, lanes: Lanes, device: bool) -> (Kind, Option<Missing>) {
    let best = Kind::software(lanes);
    match (asked, device) {
        (Asked::Native, _) => (Kind::Native, None),
        (Asked::Sw, _) => (best, (best == Kind::Native).then_some(Missing::Ifma)),
        (Asked::Hw, true) => (Kind::Hw, None),
        (Asked::Hw, false) => (Kind::Native, Some(Missing::DemandedDevice)),
        (Asked::HwSw | Asked::Auto, true) => (Kind::HwSw, None),
        (Asked::HwSw, false) => (best, Some(Missing::Device)),
        (Asked::Auto, false) => (best, None),
    }
}

/// Everything that a worker's engine is built from; cloned for each worker.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of engine.
    pub kind: Kind,
    /// The vector implementation that `sw` computes in.
    pub lanes: Lanes,
    /// Costs of operations as measured on this machine.
    pub costs: Costs,
    /// Bounds of the queue.
    pub settings: Settings,
    /// The classes that leave the native library.
    pub classes: Classes,
    /// Whether a device gets only the classes that it makes cheaper: true where no device was asked for.
    pub only_what_pays: bool,
    /// What a device compresses, if it is to compress anything.
    pub deflation: Option<Deflation>,
    /// The device, once it has been opened.
    pub hardware: Option<Arc<Hardware>>,
}

impl Plan {
    /// The plan where nothing was chosen: native.
    pub fn native() -> Plan {
        Plan::new(Kind::Native, Lanes::portable())
    }

    /// A plan with the usual settings.
    pub fn new(kind: Kind, lanes: Lanes) -> Plan {
        Plan {
            kind,
            lanes,
            costs: Costs::assumed(),
            settings: Plan::settings(Limits::default()),
            classes: Classes::default(),
            only_what_pays: false,
            deflation: None,
            hardware: None,
        }
    }

    /// Changes the plan to one without a device: engines in software take its place.
    pub fn without_device(&mut self) {
        if self.kind.has_device() {
            self.kind = Kind::software(self.lanes);
        }
        self.hardware = None;
    }

    /// Gives a worker's compressor its share of the device, or takes it away.
    pub fn install_compressor(&self, compressor: &Compressor) {
        compressor.install(self.hardware.as_deref(), self.deflation);
    }

    /// Whether a device has been opened for this plan.
    pub fn has_device(&self) -> bool {
        self.hardware.is_some()
    }

    /// The classes that are given to a device.
    pub fn classes_of(&self, hardware: &Hardware) -> Classes {
        let pays = |class| !self.only_what_pays || hardware.pays(class, &self.costs, self.lanes);
        self.classes.and(|class| hardware.can(class) && pays(class))
    }

    /// Settings of a queue before lanes: what they compute cannot be late, since they compute it in the queue's own turns.
    pub fn settings(limits: Limits) -> Settings {
        Settings { limits, deadline: Duration::from_secs(10), ..Settings::default() }
    }

    /// Gives this thread its engine, in the place of the one it may have. A device must have been opened by then, or the library
    /// computes everything.
    pub fn install(&self) {
        let sw = || Sw::new(self.lanes, self.costs, self.classes);
        let hw = |hardware| Hw::new(hardware, self.classes_of(hardware), self.lanes, self.costs);
        match (self.kind, &self.hardware) {
            (Kind::Sw, _) => worker::install(Box::new(sw()), self.settings),
            (Kind::Hw, Some(hardware)) => {
                // Unlike lanes, a device can be late.
                let settings = Settings { deadline: hw::DEADLINE, ..self.settings };
                worker::install(Box::new(hw(hardware)), settings);
            }
            (Kind::HwSw, Some(hardware)) => {
                let lanes = self.lanes.is_accelerated().then(sw);
                worker::install(Box::new(Both::new(hw(hardware), lanes, self.costs)), self.settings);
            }
            (Kind::Native, _) | (Kind::Hw | Kind::HwSw, None) => worker::uninstall(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_follows_from_what_is_asked_for_and_what_there_is() {
        let best = if Lanes::detect().is_accelerated() { Kind::Sw } else { Kind::Native };
        for (asked, here, without, with_device) in [
            ("native", (Kind::Native, None), (Kind::Native, None), Kind::Native),
            ("auto", (best, None), (Kind::Native, None), Kind::HwSw),
            ("hw+sw", (best, Some(Missing::Device)), (Kind::Native, Some(Missing::Device)), Kind::HwSw),
            (
                "hw",
                (Kind::Native, Some(Missing::DemandedDevice)),
                (Kind::Native, Some(Missing::DemandedDevice)),
                Kind::Hw,
            ),
        ] {
            let asked = Asked::from_name(asked).expect("a name");
            assert_eq!(choose(asked, Lanes::detect(), false), here);
            assert_eq!(choose(asked, Lanes::portable(), false), without);
            assert_eq!(choose(asked, Lanes::portable(), true), (with_device, None));
        }
        assert_eq!(choose(Asked::Sw, Lanes::portable(), true), (Kind::Native, Some(Missing::Ifma)));
        assert_eq!(Asked::from_name("qat"), None);
    }
}
