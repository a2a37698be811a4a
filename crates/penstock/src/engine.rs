//! Chooses the crypto engine: the one that the configuration asks for, as far as this machine has it.

use penstock_config::{
    Diagnostics, Spanned,
    model::{CompressionAlgorithm, CompressionEngine, Config, CryptoSettings, Global},
};
use penstock_engine::{
    Class, Classes, Work,
    hw::{Deflation, Hardware, Health, Options, Unusable},
    plan::{Asked, Kind, Missing, Plan, choose},
    policy::Limits,
    sw::Costs,
};
use penstock_lanes::{Implementation, Lanes};

/// The vectors to compute in: those of the processor, unless `PENSTOCK_LANES=portable` is set.
pub fn lanes() -> Lanes {
    match std::env::var("PENSTOCK_LANES").as_deref() {
        Ok("portable") => Lanes::portable(),
        _ => Lanes::detect(),
    }
}

/// The engine that a configuration asks for, and where.
fn asked(settings: &CryptoSettings, diagnostics: &mut Diagnostics) -> (Asked, Option<Spanned<String>>) {
    if let Some(engine) = &settings.engine {
        // The parser accepts no other name.
        return (Asked::from_name(&engine.value).unwrap_or_default(), Some(engine.clone()));
    }
    const NAMES: [&str; 2] = ["qatengine", "qatprovider"];
    let named = settings.ssl_engine.as_ref().or(settings.ssl_provider.as_ref());
    let Some(named) = named else { return (Asked::Auto, None) };
    if !NAMES.contains(&named.value.as_str()) {
        if named.value == "default" {
            return (Asked::Auto, None);
        }
        diagnostics.error(named.span, format!("unknown engine '{}'", named.value)).hint(
            "'qatengine' and 'qatprovider' stand for 'tune.crypto.engine hw+sw'; without the line, 'auto' is in use",
        );
        return (Asked::Native, None);
    }
    if settings.ssl_mode_async {
        return (Asked::HwSw, Some(named.clone()));
    }
    diagnostics.notice(
        named.span,
        format!(
            "without 'ssl-mode-async', '{}' is called synchronously, one operation at a time: 'native' computes",
            named.value
        ),
    );
    (Asked::Native, None)
}

/// Whether there is a QuickAssist device, as far as can be told without opening it. The libraries are looked for like
/// the system's loader does, so `ldconfig` and `LD_LIBRARY_PATH` apply.
pub fn probe() -> Result<(), Unusable> {
    Hardware::probe(&Options::default())
}

/// Decides which engine computes handshakes. Problems are added to `diagnostics`. `probe` is called if a device could
/// be used.
pub fn plan(
    global: &Global,
    lanes: Lanes,
    probe: impl FnOnce() -> Result<(), Unusable>,
    diagnostics: &mut Diagnostics,
) -> Plan {
    let settings = &global.crypto;
    let (asked, named) = asked(settings, diagnostics);
    let device = match asked {
        Asked::Native | Asked::Sw => None,
        Asked::Hw | Asked::HwSw | Asked::Auto => Some(probe()),
    };
    let (kind, missing) = choose(asked, lanes, matches!(device, Some(Ok(()))));
    if let (Some(named), Some(missing)) = (&named, missing) {
        let name = &named.value;
        let why = device.and_then(Result::err).map(|why| why.to_string()).unwrap_or_default();
        match missing {
            Missing::DemandedDevice => {
                diagnostics.error(named.span, format!("the engine 'hw' has no QuickAssist device: {why}")).hint(
                    "write 'auto' or 'hw+sw', which use what there is; 'penstock doctor' says what a device needs",
                );
            }
            Missing::Device => {
                let text = format!("'{name}' has no QuickAssist device ({why}): '{kind}' computes");
                diagnostics.notice(named.span, text);
            }
            Missing::Ifma => {
                diagnostics
                    .warning(
                        named.span,
                        "the engine 'sw' needs AVX-512 IFMA, which this processor lacks: 'native' computes",
                    )
                    .hint("write 'auto'");
            }
        }
    }
    let mut plan = Plan::new(kind, lanes);
    plan.only_what_pays = asked == Asked::Auto;
    if let Some(algo) = &settings.ssl_engine_algo {
        match Classes::parse(&algo.value) {
            Ok(classes) => plan.classes = classes,
            Err(word) => {
                diagnostics
                    .error(algo.span, format!("'{word}' is not an algorithm that engines compute"))
                    .hint("ALL, RSA, EC, PKEY_CRYPTO; DSA, DH, RAND, CIPHERS, PKEY_ASN1 and DIGESTS have no effect");
            }
        }
        diagnostics.notice(
            algo.span,
            "records, key derivation and hashes always stay with aws-lc; 'algo' concerns public-key operations only",
        );
    }
    let defaults = Limits::default();
    plan.settings = Plan::settings(Limits {
        delay: settings.batch_delay.unwrap_or(defaults.delay),
        eager: settings.batch_eager,
        ..defaults
    });
    plan
}

/// The shortest piece of a body that a demanded device is given; with less, the way there takes longer than compressing it.
const LEAST: usize = 1 << 10;
/// The shortest piece that `auto` gives to a device. Of 8 KiB of Markdown, compressing at level 1 takes 34 us, verifying 16 us, copying
/// and wiping 3 us (zlib-rs 0.6.8, November 2026); of 1 KiB it is 10, 3 and 3 us. What libqat's calls take beside that is not known: with
/// 8 KiB they may take 15 us before a device costs more than it saves.
const LEAST_THAT_PAYS: usize = 8 << 10;

/// Decides what a device compresses. Problems are added to `diagnostics`. `probe` is called if a device could be used.
pub fn deflation(
    config: &Config,
    probe: impl FnOnce() -> Result<(), Unusable>,
    diagnostics: &mut Diagnostics,
) -> Option<Deflation> {
    let asked = config.global.tune.compression_engine.as_ref()?;
    let least = match asked.value {
        CompressionEngine::Software => return None,
        CompressionEngine::Hw => LEAST,
        CompressionEngine::Auto => LEAST_THAT_PAYS,
    };
    let fits = |algorithm: &CompressionAlgorithm| {
        use CompressionAlgorithm::{Deflate, Gzip, RawDeflate};
        matches!(algorithm, Gzip | Deflate | RawDeflate)
    };
    let mut all = config.proxies.iter().filter_map(|proxy| proxy.compression.as_ref());
    if !all.any(|settings| settings.algorithms.iter().chain(&settings.request_algorithm).any(fits)) {
        diagnostics.notice(
            asked.span,
            "nothing is compressed with gzip, deflate or raw-deflate, so no device is opened for it",
        );
        return None;
    }
    let name = asked.value.name();
    match (probe(), asked.value) {
        (Ok(()), _) => Some(Deflation { least, demanded: asked.value == CompressionEngine::Hw }),
        (Err(why), CompressionEngine::Hw) => {
            diagnostics
                .error(asked.span, format!("compression by 'hw' has no QuickAssist device: {why}"))
                .hint("write 'auto', which uses what there is; 'penstock doctor' says what a device needs");
            None
        }
        (Err(why), _) => {
            diagnostics.notice(asked.span, format!("'{name}' has no QuickAssist device ({why}): software compresses"));
            None
        }
    }
}

/// Adds measurements of this machine's costs to the plan, which takes up to 50 ms: for a process that will compute.
pub fn measured(mut plan: Plan) -> Plan {
    if plan.kind != Kind::Native && plan.lanes.is_accelerated() {
        plan.costs = Costs::measure(plan.lanes);
    }
    plan
}

/// The engine that `auto` selects here, and why, in one line.
pub fn summary(lanes: Lanes, device: bool) -> String {
    let why = match lanes.implementation() {
        Implementation::Avx512Ifma => "this CPU has AVX-512 IFMA",
        Implementation::Portable => "no AVX-512 IFMA",
    };
    match choose(Asked::Auto, lanes, device).0 {
        Kind::Hw | Kind::HwSw => format!("hw+sw: a QuickAssist device for what costs less by it, and software ({why})"),
        Kind::Native => format!("native: aws-lc, one operation at a time ({why})"),
        Kind::Sw => format!("sw: eight operations at a time ({why})"),
    }
}

/// A row for each class: the fill from which lanes pay, and the cost of an operation alone (native or in lanes) and in
/// a full batch.
pub fn break_even(lanes: Lanes) -> Vec<(String, String)> {
    let plan = measured(Plan::new(Kind::software(lanes), lanes));
    if plan.kind == Kind::Native {
        return Vec::new();
    }
    let row = |class: Class| {
        let cost = plan.costs.of(class);
        // Each half of an RSA operation has a lane of its own.
        let lanes = if matches!(class.work(), Work::Sign(algorithm) if algorithm.is_rsa()) { 4.0 } else { 8.0 };
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        let text = format!(
            "from {} on: {:.1} us alone, {:.1} us in a full batch",
            cost.break_even(),
            us(cost.native.min(cost.single)),
            us(cost.lanes) / lanes
        );
        (!cost.native.is_zero()).then(|| (class.name().to_owned(), text))
    };
    Class::ALL.into_iter().filter_map(row).collect()
}

/// Rows about the QuickAssist device: why it cannot be used, or its properties.
pub fn device(lanes: Lanes) -> (bool, Vec<(String, String)>) {
    let row = |name: &str, text: String| (name.to_owned(), text);
    let hardware = match Hardware::open(&Options::default(), 1) {
        Ok(hardware) => hardware,
        Err(why) => return (false, vec![row("QuickAssist", format!("no: {why}"))]),
    };
    let device = hardware.device();
    let (instances, compression) = (device.instances(), device.compression_instances());
    let library = device.library();
    let mut rows = vec![row(
        "QuickAssist",
        format!("by {library}: {} instances for crypto, {compression} for compression", instances.len()),
    )];
    for instance in instances {
        let can = instance.capabilities;
        let can = [("RSA", can.rsa), ("ECDSA", can.ecdsa), ("ECDH", can.ecdh), ("X25519", can.x25519)];
        let can: Vec<&str> = can.iter().filter(|(_, can)| *can).map(|(name, _)| *name).collect();
        let node = instance.node.map_or(String::new(), |node| format!(", node {node}"));
        let health = match instance.health {
            Health::Up => "up",
            Health::Restarting => "restarting",
            Health::Lost => "lost",
        };
        let text = format!("{}, device {}{node}, {health}: {}", instance.part, instance.package, can.join(" "));
        rows.push(row(&instance.name, text));
    }
    let plan = measured(Plan { only_what_pays: true, ..Plan::new(Kind::HwSw, lanes) });
    for class in Class::ALL {
        if let Some(took) = hardware.took(class) {
            let auto = if plan.classes_of(&hardware).contains(class) { "" } else { "; not by 'auto'" };
            let text = format!("{:.1} us on the device{auto}", took.as_secs_f64() * 1e6);
            rows.push(row(class.name(), text));
        }
    }
    (true, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_config::Env;
    use penstock_engine::hw::Unavailable;

    fn planned(global: &str, lanes: Lanes) -> (Plan, String) {
        planned_with(Err(Unusable::Unavailable(Unavailable::NoDevice)), global, lanes)
    }

    fn planned_with(device: Result<(), Unusable>, global: &str, lanes: Lanes) -> (Plan, String) {
        let source = penstock_config::Source { name: "t.cfg".into(), text: format!("global\n  {global}\n") };
        let (config, mut diagnostics) = penstock_config::load([source], &Env::default());
        let plan = plan(&config.global, lanes, || device, &mut diagnostics);
        (plan, diagnostics.list.iter().map(|d| format!("{:?}: {}\n", d.severity, d.message)).collect())
    }

    #[test]
    fn the_engine_follows_from_the_words_of_ours_and_of_the_papers() {
        let best = if Lanes::detect().is_accelerated() { Kind::Sw } else { Kind::Native };
        let papers = "ssl-engine qatengine algo ALL\n  ssl-mode-async";
        for (text, kind, said) in [
            ("tune.crypto.engine auto", best, ""),
            ("nbthread 1", best, ""),
            ("tune.crypto.engine native", Kind::Native, ""),
            ("tune.crypto.engine hw", Kind::Native, "Error: the engine 'hw' has no QuickAssist device: libqat sees no"),
            ("tune.crypto.engine hw+sw", best, "Notice: 'hw+sw' has no QuickAssist device (libqat sees no"),
            (papers, best, "Notice: 'qatengine' has no QuickAssist device"),
            ("ssl-provider qatprovider\n  ssl-mode-async", best, "Notice: 'qatprovider' has no"),
            ("ssl-engine qatengine", Kind::Native, "Notice: without 'ssl-mode-async'"),
            ("ssl-engine rdrand", Kind::Native, "Error: unknown engine 'rdrand'"),
            ("ssl-engine qatengine algo RSA,LATTICE\n  ssl-mode-async", best, "Notice: 'qatengine'"),
        ] {
            let (plan, found) = planned(text, Lanes::detect());
            assert_eq!(plan.kind, kind, "{text}");
            assert!(found.starts_with(said) && found.is_empty() == said.is_empty(), "{text}: {found}");
        }
        let (_, found) = planned("ssl-engine qatengine algo RSA,LATTICE\n  ssl-mode-async", Lanes::detect());
        assert!(found.contains("Error: 'LATTICE' is not an algorithm"), "{found}");
    }

    #[test]
    fn with_a_device_the_same_words_choose_it() {
        for (text, kind, only_what_pays) in [
            ("nbthread 1", Kind::HwSw, true),
            ("tune.crypto.engine auto", Kind::HwSw, true),
            ("tune.crypto.engine hw", Kind::Hw, false),
            ("tune.crypto.engine hw+sw", Kind::HwSw, false),
            ("ssl-engine qatengine\n  ssl-mode-async", Kind::HwSw, false),
            ("ssl-provider qatprovider\n  ssl-mode-async", Kind::HwSw, false),
            ("tune.crypto.engine native", Kind::Native, false),
        ] {
            let (plan, found) = planned_with(Ok(()), text, Lanes::portable());
            assert_eq!((plan.kind, plan.only_what_pays, found.as_str()), (kind, only_what_pays, ""), "{text}");
        }
        assert!(summary(Lanes::portable(), true).starts_with("hw+sw"));
    }

    #[test]
    fn a_processor_without_ifma_computes_natively_and_says_so_where_lanes_were_asked_for() {
        let (plan, found) = planned("tune.crypto.engine sw", Lanes::portable());
        assert_eq!(plan.kind, Kind::Native);
        assert!(found.starts_with("Warning: the engine 'sw' needs AVX-512 IFMA"), "{found}");
        assert_eq!(planned("tune.crypto.engine auto", Lanes::portable()).1, "");
        assert!(summary(Lanes::portable(), false).starts_with("native"));
        assert!(break_even(Lanes::portable()).is_empty());
    }

    #[test]
    fn compression_by_a_device_needs_one_and_something_to_compress() {
        let decided = |device: Result<(), Unusable>, word: &str, proxies: &str| {
            let text = format!("global\n  tune.compression.engine {word}\n{proxies}");
            let source = penstock_config::Source { name: "t.cfg".into(), text };
            let (config, mut diagnostics) = penstock_config::load([source], &Env::default());
            let decided = deflation(&config, || device, &mut diagnostics).map(|it| (it.least, it.demanded));
            let said: Vec<_> = diagnostics.list.iter().map(|d| format!("{:?}: {}", d.severity, d.message)).collect();
            (decided, said.join("\n"))
        };
        let gzip = "backend b\n  mode http\n  compression algo zstd gzip\n";
        let none = || Err(Unusable::Unavailable(Unavailable::NoDevice));
        assert_eq!(decided(Ok(()), "hw", gzip), (Some((1024, true)), String::new()));
        assert_eq!(decided(Ok(()), "auto", gzip), (Some((8192, false)), String::new()));
        assert_eq!(decided(none(), "software", gzip), (None, String::new()));
        for (device, word, proxies, said) in [
            (none(), "hw", gzip, "Error: compression by 'hw' has no QuickAssist device: libqat sees no"),
            (none(), "auto", gzip, "Notice: 'auto' has no QuickAssist device (libqat sees no"),
            (Ok(()), "hw", "backend b\n  mode http\n  compression algo br\n", "Notice: nothing is compressed"),
            (Ok(()), "card", gzip, "Error: "),
        ] {
            let (decided, found) = decided(device, word, proxies);
            assert!(decided.is_none() && found.starts_with(said) && !found.contains('\n'), "{word}: {found}");
        }
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        for text in ["tune.crypto.batch-delay 2ms", "tune.crypto.max-wait 0", "tune.crypto.max-wait 2m"] {
            assert!(planned(text, Lanes::detect()).1.starts_with("Error"), "{text}");
        }
        let (plan, found) = planned("tune.crypto.batch-delay 300us\n  tune.crypto.batch-close ready", Lanes::detect());
        assert_eq!(found, "");
        assert!(plan.settings.limits.eager && plan.settings.limits.delay.as_micros() == 300);
    }
}
