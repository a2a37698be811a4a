//! The examination of recorded hosts: what is found, in which order, and that no recording makes it panic.

use penstock_config::{Config, Env, Source, load};
use penstock_doctor::{Action, Changes, Devices, Finding, Host, How, Level, Subject, examine, json, text};

const HOSTS: [(&str, &str); 5] = [
    ("xeon-qat", include_str!("hosts/xeon-qat.host")),
    ("virtual-machine", include_str!("hosts/virtual-machine.host")),
    ("epyc", include_str!("hosts/epyc.host")),
    ("container", include_str!("hosts/container.host")),
    ("laptop", include_str!("hosts/laptop.host")),
];

fn host(name: &str) -> Host {
    let (_, text) = HOSTS.iter().find(|(own, _)| *own == name).unwrap();
    Host::recorded(text).unwrap()
}

fn config(global: &str) -> Config {
    let text = format!(
        "global\n{global}\ndefaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n\
         frontend f\n bind :443\n default_backend b\nbackend b\n server s 10.0.0.1:80\n server t 10.0.0.2:80\n"
    );
    let (config, diagnostics) = load([Source::new("t.cfg", text.as_bytes())], &Env::default());
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    config
}

fn found(host: &Host, config: Option<&Config>) -> Vec<Finding> {
    let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    examine(&Subject { host, config, now: 0, read: &none, resumed: None })
}

/// Names and levels of what is above good.
fn bad(host: &Host, config: Option<&Config>) -> Vec<(&'static str, Level)> {
    found(host, config).iter().filter(|f| f.level > Level::Good).map(|f| (f.id, f.level)).collect()
}

use Level::{Critical, Notice, Warning};

#[test]
fn a_xeon_with_devices_that_a_configuration_asks_for() {
    let config = config(" maxconn 20000\n nbthread 8\n tune.crypto.engine hw+sw");
    assert_eq!(
        bad(&host("xeon-qat"), Some(&config)),
        [
            ("qat-services", Warning),
            ("qat-functions", Warning),
            ("qat-vfio", Warning),
            ("qat-memlock", Warning),
            ("cpu-map", Warning),
            ("nic-affinity", Warning),
            ("cpu-frequency", Warning),
            ("cpu-governor", Warning),
            ("cpu-turbo", Notice),
            ("tcp-buffers", Notice),
            ("sub-numa", Notice),
            ("cpu-uncore", Notice),
        ]
    );
}

#[test]
fn a_device_that_is_demanded_is_critical_there_or_not() {
    let config = config(" maxconn 20000\n nbthread 2\n tune.crypto.engine hw");
    assert_eq!(bad(&host("xeon-qat"), Some(&config))[0], ("qat-services", Critical));
    assert_eq!(bad(&host("laptop"), Some(&config))[0], ("qat-device", Critical));
    let preferred = self::config(" maxconn 20000\n nbthread 2\n tune.crypto.engine hw+sw");
    assert!(bad(&host("laptop"), Some(&preferred)).contains(&("qat-device", Warning)));
}

/// Without a configuration that asks for the device, the same things are only worth knowing.
#[test]
fn a_device_that_nobody_asks_for_is_no_warning() {
    let config = config(" maxconn 20000\n nbthread 8");
    let device = |f: &&(&str, Level)| f.0.starts_with("qat");
    assert!(bad(&host("xeon-qat"), Some(&config)).iter().filter(device).all(|f| f.1 == Notice));
    assert_eq!(bad(&host("laptop"), Some(&config)).iter().find(device), Some(&("qat-device", Notice)));
}

#[test]
fn lanes_that_are_asked_for_and_cannot_be_had_are_a_warning() {
    let level = |global: &str| {
        let config = config(global);
        bad(&host("laptop"), Some(&config)).into_iter().find(|f| f.0 == "cpu-ifma").unwrap().1
    };
    assert_eq!([level(" nbthread 2"), level(" nbthread 2\n tune.crypto.engine sw")], [Notice, Warning]);
}

#[test]
fn a_virtual_machine_with_half_of_sys() {
    let config = config(" maxconn 20000");
    assert_eq!(
        bad(&host("virtual-machine"), Some(&config)),
        [
            ("nofile", Critical),
            ("cpu-ifma", Warning),
            ("window-scaling", Warning),
            ("somaxconn", Warning),
            ("clock-source", Warning),
            ("syn-cookies", Warning),
            ("tcp-mem", Warning),
            ("nic-queues", Notice),
            ("cpu-instructions", Notice),
            ("qat-device", Notice),
        ]
    );
}

#[test]
fn an_epyc_without_ifma_on_four_nodes() {
    let config = config(" maxconn 20000\n cpu-map auto:1/1-2 0-1\n nbthread 2");
    assert_eq!(
        bad(&host("epyc"), Some(&config)),
        [
            ("clock-source", Warning),
            ("cpu-microcode", Warning),
            ("cpu-ifma", Notice),
            ("cpu-instructions", Notice),
            ("qat-device", Notice),
            ("cpu-map-nic", Notice),
            ("sub-numa", Notice),
        ]
    );
}

#[test]
fn a_container_without_sys_is_told_what_cannot_be_seen() {
    let config = config(" maxconn 20000");
    let host = host("container");
    assert_eq!(bad(&host, Some(&config)), [("cpu-quota", Warning), ("hidden", Notice)]);
    let hidden = found(&host, Some(&config)).into_iter().find(|f| f.id == "hidden").unwrap();
    assert!(hidden.evidence.iter().any(|e| e.contains("QuickAssist devices are unknown")), "{hidden:?}");
}

#[test]
fn a_laptop_as_installed() {
    let config = config(" maxconn 2000\n nbthread 2\n cpu-map 1/1 0\n cpu-map 1/2 2");
    assert_eq!(
        bad(&host("laptop"), Some(&config)),
        [
            ("cpu-map-siblings", Warning),
            ("cpu-microcode", Warning),
            ("cpu-ifma", Notice),
            ("cpu-governor", Notice),
            ("cpu-instructions", Notice),
            ("qat-device", Notice),
        ]
    );
    let stranded = self::config(" nbthread 2\n cpu-map auto:1/1-2 8-9");
    assert_eq!(bad(&host("laptop"), Some(&stranded))[0], ("cpu-map", Critical));
}

#[test]
fn tuned_for_the_configuration_and_not_beyond() {
    let host = host("laptop");
    let settings = |global: &str| -> Vec<&str> {
        let config = config(global);
        bad(&host, Some(&config))
            .into_iter()
            .map(|f| f.0)
            .filter(|id| !id.starts_with("cpu") && !id.starts_with("qat"))
            .collect()
    };
    assert_eq!(settings(" nbthread 2\n maxconn 20000"), [""; 0]);
    assert_eq!(
        settings(" nbthread 2\n maxconn 100000"),
        ["local-ports", "fin-timeout"],
        "50,000 to each of two servers"
    );
    assert_eq!(settings(" nbthread 2\n maxconn 20000\n tune.rcvbuf.client 500000"), ["fixed-buffers"]);
    assert_eq!(settings(" nbthread 2\n maxconn 600000")[0], "file-max");
    assert_eq!(settings(" nbthread 2")[0], "nofile", "1024 descriptors decide where there is no maxconn");
}

#[test]
fn every_finding_has_evidence_consequence_and_order() {
    let config = config(" maxconn 200000\n nbthread 8\n tune.crypto.engine hw+sw");
    for (name, _) in HOSTS {
        let findings = found(&host(name), Some(&config));
        assert!(findings.is_sorted_by_key(|f| (std::cmp::Reverse(f.level), std::cmp::Reverse(f.worth))));
        for finding in findings.iter().filter(|f| f.level > Level::Good) {
            assert!(!finding.evidence.is_empty() && !finding.consequence.is_empty(), "{name}: {finding:?}");
            assert!(finding.level == Notice || !finding.fix.is_empty(), "{name}: {finding:?}");
            assert!(!finding.finding.ends_with('.'), "{finding:?}");
        }
        let page = text(&findings, true, false);
        assert!(!page.contains('\x1b') && text(&findings, true, true).contains('\x1b'));
        assert_eq!(json(&findings)["findings"].as_array().unwrap().len(), findings.len());
    }
}

/// A recording reproduces what it was made of.
#[test]
fn a_recording_of_a_recording_gives_the_same_findings() {
    let config = config(" maxconn 20000\n tune.crypto.engine hw+sw");
    for (name, _) in HOSTS {
        let first = host(name);
        let before = found(&first, Some(&config));
        let again = Host::recorded(&first.record()).unwrap();
        let after = found(&again, Some(&config));
        let names = |list: &[Finding]| list.iter().map(|f| (f.id, f.level)).collect::<Vec<_>>();
        assert_eq!(names(&before), names(&after), "{name}");
    }
}

/// Files of a host that are cut off, empty, huge or nonsense give findings or none, never a panic.
#[test]
fn no_host_makes_it_panic() {
    let config = config(" maxconn 20000\n nbthread 4\n cpu-map auto:1/1-4 0-3\n tune.crypto.engine hw+sw");
    let examined = |text: &str| {
        if let Ok(host) = Host::recorded(text) {
            text.len().checked_sub(found(&host, Some(&config)).len()).expect("fewer findings than bytes");
            let _ = Devices::of(&host).status(None);
        }
    };
    for (_, whole) in HOSTS {
        for end in (0..whole.len()).step_by(211).filter(|end| whole.is_char_boundary(*end)) {
            examined(&whole[..end]);
        }
        for nonsense in ["", "-1", "18446744073709551616", "NaN", "0", "999999999-0", "0-4294967295", "\u{fffd}", ";"] {
            let twisted: String = whole
                .lines()
                .map(|line| if line.starts_with("== ") { format!("{line}\n") } else { format!("{nonsense}\n") })
                .collect();
            examined(&twisted);
            let digits: String = whole
                .lines()
                .map(|line| match line.starts_with("== ") {
                    true => format!("{line}\n"),
                    false => line.replace(|c: char| c.is_ascii_digit(), nonsense) + "\n",
                })
                .collect();
            examined(&digits);
        }
    }
}

#[test]
fn devices_are_shown_and_changed_by_sys_or_adf_ctl() {
    let host = host("xeon-qat");
    let devices = Devices::of(&host);
    let table = devices.status(None).unwrap();
    assert!(table.contains("0000:6b:00.0") && table.contains("2 of 16 (1)"), "{table}");
    assert_eq!(devices.json(Some("e8:00.0")).unwrap()["devices"][0]["asymmetric"], false);
    assert!(devices.find(None).unwrap_err().contains("2 devices"));
    assert!(devices.find(Some("ff:00.0")).unwrap_err().contains("0000:6b:00.0, 0000:e8:00.0"));
    let How::Write(steps) = devices.plan(Action::Restart, Some("1")).unwrap() else { panic!("by /sys") };
    let shown: Vec<_> = steps.iter().map(|s| (s.path.as_str(), s.text.as_str())).collect();
    let state = "/sys/bus/pci/devices/0000:e8:00.0/qat/state";
    assert_eq!(shown, [(state, "down"), (state, "up")]);
    let How::Write(steps) = devices.plan(Action::Reset, Some("1")).unwrap() else { panic!("by /sys") };
    assert_eq!(steps[0].path, "/sys/bus/pci/devices/0000:e8:00.0/reset");

    let old = Host::recorded(
        "== $ lspci -Dn\n0000:3d:00.0 0b40: 8086:37c8 (rev 04)\n== $ adf_ctl status\nChecking status of all devices.\n \
         qat_dev0 - type: c6xx,  inst_id: 0,  node_id: 0,  bsf: 0000:3d:00.0,  #accel: 5 #engines: 10 state: up\n",
    )
    .unwrap();
    let devices = Devices::of(&old);
    assert!(devices.status(Some("qat_dev0")).unwrap().contains(" up "));
    let lines = vec!["adf_ctl qat_dev0 down".to_owned(), "adf_ctl qat_dev0 up".to_owned()];
    assert_eq!(devices.plan(Action::Restart, None), Ok(How::Run(lines)));
    let none = Host::recorded("== /proc/x\n").unwrap();
    assert!(Devices::of(&none).status(None).unwrap_err().contains("devices are unknown"));
}

/// The fixes of a whole host, applied to a copy of it and taken back.
#[test]
fn fixes_are_applied_and_taken_back() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path.trim_start_matches('/'));
    let mut links = Vec::new();
    for line in HOSTS[0].1.split("== ").skip(1) {
        let (head, body) = line.split_once('\n').unwrap();
        match head.split_once(" -> ") {
            Some(link) => links.push(link),
            None => {
                std::fs::create_dir_all(at(head).parent().unwrap()).unwrap();
                std::fs::write(at(head), body).unwrap();
            }
        }
    }
    // What other files are below is a directory here, whatever it links to there.
    for (path, target) in links.into_iter().filter(|(path, _)| !at(path).is_dir()) {
        std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, at(path)).unwrap();
    }
    let config = config(" maxconn 200000\n nbthread 8\n tune.crypto.engine hw+sw");
    let read = || found(&Host::at(root.path()), Some(&config));
    let before = read();
    let changes = Changes::new(root.path(), "/var/lib/penstock/doctor.json");
    changes.apply(&changes.steps(&before)).unwrap();
    let after: Vec<&str> = read().iter().filter(|f| f.level >= Warning).map(|f| f.id).collect();
    for mended in ["qat-services", "cpu-governor", "cpu-frequency", "nic-affinity", "qat-memlock", "conntrack"] {
        assert!(before.iter().any(|f| f.id == mended && f.level >= Warning), "{mended} was found");
        assert!(!after.contains(&mended), "{mended} is mended: {after:?}");
    }
    changes.undo(false).unwrap();
    let names = |list: &[Finding]| list.iter().map(|f| (f.id, f.level)).collect::<Vec<_>>();
    assert_eq!(names(&before), names(&read()));
}
