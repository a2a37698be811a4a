//! What each engine was measured to do: rate against cores, and a device's peak.

use crate::error::{Problem, number};
use serde_json::Value;

/// Which engine computes the handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One at a time, in software.
    Native,
    /// Eight lanes at a time, in software.
    Sw,
    /// On a device.
    Hw,
    /// On a device, and in software beyond the device's peak.
    HwSw,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Native, Mode::Sw, Mode::Hw, Mode::HwSw];

    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Sw => "sw",
            Mode::Hw => "hw",
            Mode::HwSw => "hw+sw",
        }
    }

    /// Whether a device takes part.
    pub fn has_device(self) -> bool {
        matches!(self, Mode::Hw | Mode::HwSw)
    }
}

/// The highest rate that is believed, TPS: beyond it, the text was no rate.
const RATE_MAX: f64 = 1e9;
/// The most cores that are believed.
const CORES_MAX: f64 = 1e4;

/// Rate against cores: measured points, straight lines between them, from nothing at no cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// From points (cores, TPS), both rising.
    ///
    /// # Errors
    /// A number is no number, zero, negative or out of order.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Result<Curve, Problem> {
        let bad = |why: String| Err(Problem::BadCurve { name: name.into(), why });
        if points.is_empty() {
            return bad("there is no point".into());
        }
        let mut last = (0.0, 0.0);
        for &(cores, tps) in &points {
            let fits = |value: f64, most: f64| value.is_finite() && value > 0.0 && value <= most;
            if !fits(cores, CORES_MAX) || !fits(tps, RATE_MAX) {
                return bad(format!("{cores} cores at {tps} TPS: both must be above zero, and believable"));
            }
            if cores <= last.0 || tps <= last.1 {
                return bad(format!(
                    "{cores} cores at {tps} TPS come after {} at {}: cores and rates must rise",
                    last.0, last.1
                ));
            }
            last = (cores, tps);
        }
        Ok(Curve { points })
    }

    /// From text: `1625` is a rate of one core, `8:5000,12:9000` are measured points.
    ///
    /// # Errors
    /// If the text is neither, a number is out of range, or cores and rates do not rise from point to point.
    pub fn parse(name: &str, text: &str) -> Result<Curve, Problem> {
        let mut points = Vec::new();
        for point in text.split(',') {
            let (cores, tps) = point.split_once(':').unwrap_or(("1", point));
            points.push((
                number(&format!("the cores of {name}"), cores, 0.001, CORES_MAX, false)?,
                number(&format!("the rate of {name}"), tps, 0.001, RATE_MAX, false)?,
            ));
        }
        Curve::new(name, points)
    }

    /// The measured points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    fn last(&self) -> (f64, f64) {
        *self.points.last().expect("a curve has a point: `new` saw to it")
    }

    /// The most cores that were measured.
    pub fn measured_to(&self) -> f64 {
        self.last().0
    }

    /// The highest rate that was measured.
    pub fn highest(&self) -> f64 {
        self.last().1
    }

    /// TPS a core beyond what was measured: the slope of the last piece, never above the average up to there.
    fn slope_beyond(&self) -> f64 {
        let (cores, tps) = self.last();
        let before = self.points.len().checked_sub(2).map_or((0.0, 0.0), |i| self.points[i]);
        (tps / cores).min((tps - before.1) / (cores - before.0))
    }

    /// TPS of this many cores.
    pub fn rate(&self, cores: f64) -> f64 {
        let (most, highest) = self.last();
        between(self.points.iter().copied(), cores).unwrap_or_else(|| highest + (cores - most) * self.slope_beyond())
    }

    /// Cores that this many TPS take, in fractions.
    pub fn cores(&self, tps: f64) -> f64 {
        let (most, highest) = self.last();
        let by_rate = self.points.iter().map(|(cores, tps)| (*tps, *cores));
        between(by_rate, tps).unwrap_or_else(|| most + (tps - highest) / self.slope_beyond())
    }
}

/// On the straight lines between rising points and zero; nothing beyond the last one.
fn between(points: impl Iterator<Item = (f64, f64)>, x: f64) -> Option<f64> {
    let mut from = (0.0, 0.0);
    for to in points {
        if x <= to.0 {
            return Some(from.1 + (to.1 - from.1) * (x - from.0) / (to.0 - from.0));
        }
        from = to;
    }
    None
}

/// A device with the cores that feed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Rate against cores with one device, up to its peak.
    pub curve: Curve,
    /// TPS that one device never exceeds.
    pub peak: f64,
    /// Whether the peak is only the highest rate that was measured.
    pub peak_is_highest_measured: bool,
}

impl Device {
    /// A device with its curve; without a known peak the highest measured rate is taken for it.
    ///
    /// # Errors
    /// The peak is below what was measured.
    pub fn new(curve: Curve, peak: Option<f64>) -> Result<Device, Problem> {
        // One typed rate of one core says nothing about where the device ends.
        let Some(peak) = peak else {
            let peak = curve.highest();
            return Ok(Device { curve, peak, peak_is_highest_measured: true });
        };
        if !peak.is_finite() || peak <= 0.0 || peak > RATE_MAX {
            let expected = "expected a rate above zero".into();
            return Err(Problem::BadValue { name: "device-peak".into(), value: peak.to_string(), expected });
        }
        if peak < curve.highest() {
            let why = format!("{} TPS were measured, above the peak of {peak}", curve.highest());
            return Err(Problem::BadCurve { name: "hw".into(), why });
        }
        Ok(Device { curve, peak, peak_is_highest_measured: false })
    }
}

/// The rates of all modes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Rates with one operation at a time.
    pub native: Option<Curve>,
    /// Rates with eight lanes.
    pub sw: Option<Curve>,
    /// Rates with a device.
    pub hw: Option<Device>,
    /// The origin of the rates, for the reader.
    pub source: String,
}

impl Rates {
    /// What is beyond a device's peak: the lanes where they were measured, else one at a time.
    pub fn software(&self) -> Option<(Mode, &Curve)> {
        let sw = self.sw.as_ref().map(|curve| (Mode::Sw, curve));
        sw.or_else(|| self.native.as_ref().map(|curve| (Mode::Native, curve)))
    }

    /// The modes there are rates for.
    pub fn modes(&self) -> Vec<Mode> {
        let known = |mode: &Mode| match mode {
            Mode::Native => self.native.is_some(),
            Mode::Sw => self.sw.is_some(),
            Mode::Hw => self.hw.is_some(),
            Mode::HwSw => self.hw.is_some() && self.software().is_some(),
        };
        Mode::ALL.into_iter().filter(known).collect()
    }

    /// Reads a study: `{"source": TEXT, "modes": {"native": {"points": [{"cores": N, "tps": N}]}, "sw": .., "hw": {"points":
    /// .., "device_peak_tps": N}}}`. `plan --measure --json` writes one.
    ///
    /// # Errors
    /// If the text is not JSON, has no mode that is known, or a rate is not usable.
    pub fn from_study(text: &str) -> Result<Rates, Problem> {
        let bad = |why: String| Problem::BadStudy(why);
        let json: Value = serde_json::from_str(text).map_err(|e| bad(format!("it is not JSON: {e}")))?;
        let modes = json.get("modes").and_then(Value::as_object);
        let modes = modes.ok_or_else(|| bad("it has no object 'modes'".into()))?;
        let mut rates = Rates::default();
        for (name, mode) in modes {
            let points = mode.get("points").and_then(Value::as_array);
            let points = points.ok_or_else(|| bad(format!("'{name}' has no list 'points'")))?;
            let point = |point: &Value| Some((point.get("cores")?.as_f64()?, point.get("tps")?.as_f64()?));
            let points: Option<Vec<_>> = points.iter().map(point).collect();
            let points = points
                .ok_or_else(|| bad(format!("a point of '{name}' lacks 'cores' or 'tps', or they are no numbers")))?;
            let curve = Curve::new(name, points)?;
            match name.as_str() {
                "native" => rates.native = Some(curve),
                "sw" => rates.sw = Some(curve),
                "hw" => {
                    let peak = match mode.get("device_peak_tps") {
                        None | Some(Value::Null) => None,
                        Some(peak) => {
                            Some(peak.as_f64().ok_or_else(|| bad("'device_peak_tps' is not a number".into()))?)
                        }
                    };
                    rates.hw = Some(Device::new(curve, peak)?);
                }
                // What the two do together is worked out from each.
                "hw+sw" => {}
                _ => return Err(bad(format!("'{name}' is not a mode: native, sw, hw and hw+sw are"))),
            }
        }
        if rates.modes().is_empty() {
            return Err(bad("it has no rates".into()));
        }
        rates.source = json.get("source").and_then(Value::as_str).unwrap_or("a study").to_owned();
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_straight_between_its_points() {
        let curve = Curve::parse("native", "8:5000,12:9000,26:18000").unwrap();
        assert_eq!([4.0, 8.0, 10.0, 26.0].map(|c| curve.rate(c)), [2500.0, 5000.0, 7000.0, 18000.0]);
        assert_eq!([2500.0, 5000.0, 7000.0, 18000.0].map(|r| curve.cores(r)), [4.0, 8.0, 10.0, 26.0]);
        // Beyond: (18000 - 9000) / 14 = 642.857 a core, which is below the average of 692.3.
        assert!((curve.rate(40.0) - 27000.0).abs() < 1e-6);
        assert!((curve.cores(27000.0) - 40.0).abs() < 1e-9);
        let steep = Curve::parse("native", "8:5000,12:9000").unwrap();
        assert_eq!(steep.rate(24.0), 18000.0, "9000 / 12 a core, not the last piece's 1000");
    }

    #[test]
    fn a_curve_that_no_machine_has_is_refused() {
        for text in ["", "0", "-5", "NaN", "inf", "8:5000,4:9000", "4:9000,8:9000", "4:-1", "0:100", "4:", ":", "1:2:3"]
        {
            assert!(Curve::parse("native", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_study_is_read_or_said_to_be_wrong() {
        let study = r#"{"source": "here", "modes": {"native": {"points": [{"cores": 1, "tps": 1600}]},
            "hw": {"points": [{"cores": 2, "tps": 9000}], "device_peak_tps": 30000}}}"#;
        let rates = Rates::from_study(study).unwrap();
        assert_eq!(rates.modes(), [Mode::Native, Mode::Hw, Mode::HwSw]);
        assert_eq!((rates.hw.unwrap().peak, rates.source.as_str()), (30000.0, "here"));
        for (text, why) in [
            ("", "not JSON"),
            ("[]", "no object 'modes'"),
            (r#"{"modes": {}}"#, "no rates"),
            (r#"{"modes": {"native": {}}}"#, "no list 'points'"),
            (r#"{"modes": {"native": {"points": [{"cores": "a", "tps": 1}]}}}"#, "no numbers"),
            (r#"{"modes": {"native": {"points": [{"cores": 1, "tps": -1}]}}}"#, "above zero"),
            (r#"{"modes": {"native": {"points": []}}}"#, "no point"),
            (r#"{"modes": {"gpu": {"points": [{"cores": 1, "tps": 1}]}}}"#, "not a mode"),
            (r#"{"modes": {"hw": {"points": [{"cores": 1, "tps": 9}], "device_peak_tps": 5}}}"#, "above the peak"),
            (r#"{"modes": {"hw": {"points": [{"cores": 1, "tps": 9}], "device_peak_tps": "x"}}}"#, "not a number"),
        ] {
            let said = Rates::from_study(text).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
