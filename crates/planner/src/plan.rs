//! The arithmetic: a service level into cores, servers, devices, power and money.

use crate::{
    error::Problem,
    inputs::{Attribution, Inputs},
    rates::{Curve, Device, Mode, Rates},
};
use penstock_figures::number::whole;

/// The most servers that are worth a plan; beyond it the level was a slip of the keyboard.
const SERVERS_MAX: f64 = 1e6;
/// Sums of fractions come out a hair beside whole numbers.
const HAIR: f64 = 1e-9;

/// What a level takes of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct OneServer {
    /// Cores allocated: rounded up to the step.
    pub cores: f64,
    /// Cores' worth of work, in fractions.
    pub busy_cores: f64,
    /// Devices in use.
    pub devices: u32,
    /// TPS of each device over its peak; 0 without one.
    pub device_load: f64,
    /// TPS that software computes beside a device.
    pub beside: f64,
    /// Whether more cores are needed than were measured, so that the rate was continued beyond its last point.
    pub beyond_measured: bool,
}

/// What serves a level.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The engine that serves the level.
    pub mode: Mode,
    /// TPS asked for.
    pub level: f64,
    /// How many servers share the level evenly.
    pub servers: u32,
    /// What the level takes of each server.
    pub share: OneServer,
    /// Cores of a server.
    pub cores_per_server: f64,
    /// OneServer of all cores that is not allocated.
    pub idle: f64,
    /// Power of all servers and cards together in kW, before PUE.
    pub kw: f64,
    /// Racks that the servers fill.
    pub racks: u32,
    /// USD a month.
    pub cost: Cost,
    /// The highest level that one such server reaches.
    pub server_max: f64,
    /// What to add beyond that; empty where more servers are the only way.
    pub next: String,
}

/// USD a month.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Servers, amortised.
    pub servers: f64,
    /// Cards, amortised.
    pub cards: f64,
    /// Energy.
    pub energy: f64,
    /// Rack space.
    pub space: f64,
}

impl Cost {
    /// The sum of all costs.
    pub fn total(&self) -> f64 {
        self.servers + self.cards + self.energy + self.space
    }
}

impl Fleet {
    /// USD a month for every 1,000 TPS.
    pub fn usd_per_1000_tps(&self) -> f64 {
        self.cost.total() / self.level * 1000.0
    }
}

/// What a level takes of one server, or `None` where one is not enough.
///
/// # Errors
/// There are no rates for this mode.
pub fn on_one_server(mode: Mode, level: f64, inputs: &Inputs, rates: &Rates) -> Result<Option<OneServer>, Problem> {
    let missing = || Problem::NoRates(mode.name());
    // A plan that may use 80 % of what was measured asks for a rate a quarter above its level.
    let wanted = level / inputs.max_utilisation;
    let (busy_cores, devices, device_load, beside, beyond_measured) = match mode {
        Mode::Native | Mode::Sw => {
            let curve = if mode == Mode::Sw { &rates.sw } else { &rates.native }.as_ref().ok_or_else(missing)?;
            let busy = curve.cores(wanted);
            (busy, 0.0, 0.0, 0.0, busy > curve.measured_to() + HAIR)
        }
        Mode::Hw => {
            let device = rates.hw.as_ref().ok_or_else(missing)?;
            let devices = (wanted / device.peak - HAIR).ceil().max(1.0);
            if devices > inputs.cards_per_server {
                return Ok(None);
            }
            let (cores, beyond) = feeding(device, devices, wanted);
            (cores, devices, wanted / devices / device.peak, 0.0, beyond)
        }
        Mode::HwSw => {
            let device = rates.hw.as_ref().ok_or_else(missing)?;
            let (_, software) = rates.software().ok_or_else(missing)?;
            let devices = (wanted / device.peak - HAIR).ceil().clamp(1.0, inputs.cards_per_server);
            let by_device = wanted.min(devices * device.peak);
            let rest = wanted - by_device;
            let (feeding, beyond) = feeding(device, devices, by_device);
            let aside = software.cores(rest);
            let beyond = beyond || aside > software.measured_to() + HAIR;
            let beside = rest * inputs.max_utilisation;
            (feeding + aside, devices, by_device / devices / device.peak, beside, beyond)
        }
    };
    if busy_cores > inputs.cores_per_server + HAIR {
        return Ok(None);
    }
    let steps = (busy_cores / inputs.core_step - HAIR).ceil().max(1.0);
    let cores = (steps * inputs.core_step).min(inputs.cores_per_server);
    Ok(Some(OneServer { cores, busy_cores, devices: devices as u32, device_load, beside, beyond_measured }))
}

/// Cores that feed this many devices, each an equal part, and whether that is more than were measured.
fn feeding(device: &Device, devices: f64, tps: f64) -> (f64, bool) {
    let each = device.curve.cores(tps / devices);
    (each * devices, each > device.curve.measured_to() + HAIR)
}

/// TPS of a server with this many cores and cards, by the devices alone; never above their peaks.
pub(crate) fn device_rate(device: &Device, cores: f64, cards: f64) -> f64 {
    // More cards than cores can feed do not help: the best number of those there are.
    let rate = |used: f64| used * device.curve.rate(cores / used).min(device.peak);
    (1..=cards as u32).map(|used| rate(f64::from(used))).fold(0.0, f64::max)
}

/// TPS of this many cores in software.
pub(crate) fn software_rate(curve: &Curve, cores: f64) -> f64 {
    curve.rate(cores)
}

/// The highest level of one server.
pub(crate) fn server_max(mode: Mode, inputs: &Inputs, rates: &Rates) -> Result<f64, Problem> {
    // `on_one_server` refuses above some level and not below: halving finds it to the last bit of interest.
    let (mut fits, mut refused) = (0.0, 1e15);
    for _ in 0..100 {
        let middle = (fits + refused) / 2.0;
        match on_one_server(mode, middle, inputs, rates)? {
            Some(_) => fits = middle,
            None => refused = middle,
        }
    }
    // A bound that is a whole number is met from below.
    let rounded = (fits + 0.5).floor();
    Ok(if (rounded - fits).abs() < 1e-3 { rounded } else { fits })
}

/// What serves a level: the fewest servers, sharing it evenly.
///
/// # Errors
/// The level is not a rate, there are no rates for this mode, or it would take an absurd number of servers.
pub fn fleet(mode: Mode, level: f64, inputs: &Inputs, rates: &Rates) -> Result<Fleet, Problem> {
    if !level.is_finite() || level <= 0.0 {
        let expected = "expected a number above zero".into();
        return Err(Problem::BadValue { name: "level".into(), value: level.to_string(), expected });
    }
    let server_max = server_max(mode, inputs, rates)?;
    let least = (level / server_max - HAIR).ceil().max(1.0);
    if least.is_nan() || least > SERVERS_MAX {
        let why = format!(
            "one server reaches {} TPS by {}, so that it would take {}",
            whole(server_max),
            mode.name(),
            whole(least)
        );
        return Err(Problem::Unreachable { level, why });
    }
    // The division above and the search may disagree by a hair: then one server more.
    for servers in [least, least + 1.0] {
        if let Some(share) = on_one_server(mode, level / servers, inputs, rates)? {
            return Ok(priced(mode, level, servers, share, server_max, inputs, rates));
        }
    }
    Err(Problem::Unreachable { level, why: format!("not even {} servers do by {}", whole(least), mode.name()) })
}

fn priced(
    mode: Mode,
    level: f64,
    servers: f64,
    share: OneServer,
    server_max: f64,
    inputs: &Inputs,
    rates: &Rates,
) -> Fleet {
    let paid = match inputs.attribution {
        Attribution::Whole => 1.0,
        Attribution::Cores => share.cores / inputs.cores_per_server,
    };
    let cards = f64::from(share.devices);
    let cost = Cost {
        servers: servers * paid * inputs.server_usd / inputs.months,
        cards: servers * cards * inputs.card_usd / inputs.months,
        energy: servers
            * (paid * inputs.server_kw + cards * inputs.card_kw)
            * inputs.pue
            * inputs.hours_per_month
            * inputs.usd_per_kwh,
        space: servers * paid * inputs.units_per_server * inputs.unit_usd_year / 12.0,
    };
    let (fit, _) = servers_in_rack(cards, inputs);
    Fleet {
        mode,
        level,
        servers: servers as u32,
        cores_per_server: inputs.cores_per_server,
        idle: 1.0 - share.cores / inputs.cores_per_server,
        kw: servers * (inputs.server_kw + cards * inputs.card_kw),
        racks: (servers / fit.max(1.0)).ceil() as u32,
        cost,
        server_max,
        next: next(mode, cards, inputs, rates),
        share,
    }
}

/// How many servers with this many cards a rack takes, and what limits it.
pub(crate) fn servers_in_rack(cards: f64, inputs: &Inputs) -> (f64, &'static str) {
    let by_power = (inputs.rack_kw / (inputs.server_kw + cards * inputs.card_kw) + HAIR).floor();
    let by_height = (inputs.rack_units / inputs.units_per_server).floor();
    let limits = [(inputs.servers_per_rack, "servers-per-rack"), (by_power, "rack-kw"), (by_height, "rack-units")];
    let (fit, why) = limits.into_iter().fold((f64::INFINITY, ""), |least, l| if l.0 < least.0 { l } else { least });
    (fit, why)
}

/// The rate up to which a server's devices suffice, and what comes beyond it, in words; empty except in mode hw.
fn next(mode: Mode, cards: f64, inputs: &Inputs, rates: &Rates) -> String {
    let Some(device) = rates.hw.as_ref().filter(|_| mode == Mode::Hw) else { return String::new() };
    let end = cards * device.peak * inputs.max_utilisation;
    let known =
        if device.peak_is_highest_measured { " (the highest rate measured: its true peak is unknown)" } else { "" };
    let another = if cards < inputs.cards_per_server {
        format!("card {} of {}", cards + 1.0, inputs.cards_per_server)
    } else {
        format!("a card more in each server (cards-per-server is {})", inputs.cards_per_server)
    };
    let or = if rates.software().is_some() { ", or hw+sw," } else { "" };
    format!("above {} TPS a server{known}: {another}{or} or a server more", whole(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    fn plan(mode: Mode, level: f64, change: &[(&str, &str)]) -> Fleet {
        let mut inputs = Inputs::default();
        for (name, value) in change {
            inputs.set(name, value).unwrap();
        }
        fleet(mode, level, &inputs, &published::rates()).unwrap()
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 0.005, "{a} is not {b}");
    }

    /// By hand: 12 of 26 cores of an 11,289 USD server over 36 months are 144.73 USD; 0.6 kW x 12/26 x 1.5 x 730 h x 0.12
    /// are 36.39; 75.76 / 12 x 12/26 are 2.91.
    #[test]
    fn software_at_9000_costs_what_a_pocket_calculator_says() {
        let plan = plan(Mode::Native, 9000.0, &[]);
        assert_eq!((plan.servers, plan.share.cores, plan.share.devices, plan.racks), (1, 12.0, 0, 1));
        close(plan.cost.servers, 144.73);
        close(plan.cost.energy, 36.39);
        close(plan.cost.space, 2.91);
        close(plan.cost.total(), 184.03);
        close(plan.usd_per_1000_tps(), 20.45);
        close(plan.idle, 0.538);
    }

    /// By hand: 2 of 26 cores are 24.12 USD, the card 748 / 36 = 20.78, energy (0.6 x 2/26 + 0.023) x 1.5 x 730 x 0.12 = 9.09,
    /// space 0.49.
    #[test]
    fn a_card_is_paid_for_whole() {
        let plan = plan(Mode::Hw, 9000.0, &[]);
        assert_eq!((plan.share.cores, plan.share.devices), (2.0, 1));
        close(plan.cost.servers, 24.12);
        close(plan.cost.cards, 20.78);
        close(plan.cost.energy, 9.09);
        close(plan.cost.space, 0.49);
        close(plan.share.device_load, 0.3);
    }

    #[test]
    fn a_whole_server_is_paid_for_where_asked() {
        let plan = plan(Mode::Native, 9000.0, &[("attribution", "whole"), ("months", "12")]);
        close(plan.cost.servers, 940.75);
        close(plan.cost.energy, 78.84);
        close(plan.cost.space, 6.31);
    }

    #[test]
    fn a_device_is_never_planned_past_its_peak() {
        let one = plan(Mode::Hw, 30000.0, &[]);
        assert_eq!((one.servers, one.share.cores, one.share.devices), (1, 4.0, 1));
        close(one.share.device_load, 1.0);
        let over = plan(Mode::Hw, 30001.0, &[]);
        assert_eq!((over.servers, over.share.devices), (2, 1), "a second server, not more of one device");
        let two = plan(Mode::Hw, 60000.0, &[("cards-per-server", "2")]);
        assert_eq!((two.servers, two.share.devices, two.share.cores), (1, 2, 8.0));
        let both = plan(Mode::HwSw, 40000.0, &[]);
        // 30,000 by the card on 4 cores; 10,000 in software: 12 + 1000 / 642.86 = 13.56 cores.
        assert_eq!((both.servers, both.share.cores), (1, 18.0));
        close(both.share.busy_cores, 17.556);
        close(both.share.beside, 10000.0);
        assert!(one.next.contains("above 30,000 TPS a server") && one.next.contains("hw+sw"), "{}", one.next);
    }

    #[test]
    fn a_cap_on_utilisation_is_kept_by_every_mode() {
        let cap = [("max-utilisation", "0.5")];
        let native = plan(Mode::Native, 9000.0, &cap);
        assert_eq!((native.servers, native.share.cores), (1, 26.0), "half of 18,000");
        let hw = plan(Mode::Hw, 15000.0, &cap);
        assert_eq!((hw.servers, hw.share.cores), (1, 4.0));
        close(hw.share.device_load, 1.0);
        assert_eq!(plan(Mode::Hw, 15001.0, &cap).servers, 2);
        assert_eq!(plan(Mode::Native, 9001.0, &cap).servers, 2);
        let both = plan(Mode::HwSw, 20000.0, &cap);
        assert!(both.share.busy_cores <= 26.0 && both.servers == 1, "{both:?}");
    }

    #[test]
    fn servers_share_a_level_evenly_and_fill_racks_by_power_and_height() {
        let plan = plan(Mode::Native, 30000.0, &[]);
        // 15,000 each: 12 + 6000 / 642.86 = 21.3, so 22 cores.
        assert_eq!((plan.servers, plan.share.cores, plan.racks), (2, 22.0, 1));
        close(plan.kw, 1.2);
        let inputs = |change: &[(&str, &str)]| {
            let mut inputs = Inputs::default();
            change.iter().for_each(|(name, value)| inputs.set(name, value).unwrap());
            inputs
        };
        assert_eq!(servers_in_rack(1.0, &inputs(&[])), (8.0, "servers-per-rack"));
        // 10 kW over 0.623 are 16.05.
        assert_eq!(servers_in_rack(1.0, &inputs(&[("servers-per-rack", "40")])), (16.0, "rack-kw"));
        let high = inputs(&[("servers-per-rack", "40"), ("units-per-server", "4")]);
        assert_eq!(servers_in_rack(0.0, &high), (10.0, "rack-units"));
    }

    #[test]
    fn what_cannot_be_served_is_said() {
        let inputs = Inputs::default();
        let rates = published::rates();
        for level in [0.0, -5.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(fleet(Mode::Native, level, &inputs, &rates), Err(Problem::BadValue { .. })));
        }
        let absurd = fleet(Mode::Native, 1e14, &inputs, &rates).unwrap_err().to_string();
        assert!(absurd.contains("one server reaches 18,000 TPS by native"), "{absurd}");
        assert_eq!(fleet(Mode::Sw, 1.0, &inputs, &rates), Err(Problem::NoRates("sw")));
    }

    #[test]
    fn more_tps_never_take_fewer_cores_of_as_many_servers() {
        let (inputs, rates) = (Inputs::default(), published::rates());
        for mode in rates.modes() {
            let mut last = (0, 0.0);
            for level in (1..200).map(|k| f64::from(k) * 500.0) {
                let plan = fleet(mode, level, &inputs, &rates).unwrap();
                assert!(plan.servers > last.0 || plan.share.busy_cores > last.1, "{mode:?} {level}");
                assert!(level / f64::from(plan.servers) <= plan.server_max + 1e-6);
                assert!(plan.share.cores + 1e-9 >= plan.share.busy_cores && plan.idle >= 0.0);
                assert!(plan.share.device_load <= 1.0 + 1e-9);
                last = (plan.servers, plan.share.busy_cores);
            }
        }
    }
}
