//! `lab-setup`: a server or a client to measure with, as the tuning guides of the papers set theirs up: files that run, and
//! the settings of the host, all of which are taken back by one command.

use crate::{Change, Cpu, Host, facts::interfaces, range};

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Role {
    Server,
    Client,
}

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mode {
    Native,
    Sw,
    Hw,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Sw => "sw",
            Mode::Hw => "hw",
        }
    }
}

/// Kinds of certificate: as they are typed, and as openssl calls them.
pub const CERTIFICATES: [(&str, &str); 3] =
    [("rsa2048", "rsa:2048"), ("rsa4096", "rsa:4096"), ("ecdsa", "ec -pkeyopt ec_paramgen_curve:P-256")];

/// What was asked for in a lab setup.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The side to set up.
    pub role: Role,
    /// The engine to use.
    pub mode: Mode,
    /// The directory for the files: an absolute path.
    pub dir: String,
    /// The program that serves: `haproxy`, or the path of penstock.
    pub proxy: String,
    /// Whether that program is HAProxy.
    pub is_haproxy: bool,
    /// Processors of the proxy, or of the load generator.
    pub cores: Vec<u32>,
    /// Threads of the proxy.
    pub nbthread: Option<u32>,
    /// Processors of the backend.
    pub backend_cores: Vec<u32>,
    /// Workers of the backend.
    pub backend_workers: Option<u32>,
    /// Whether connections of clients are kept.
    pub keep_alive: bool,
    /// One of [`CERTIFICATES`].
    pub certificate: &'static str,
    /// The ports on which the proxy and the backend listen.
    pub ports: (u16, u16),
    /// Network devices whose interrupts are bound to `cores`.
    pub irq_devices: Vec<String>,
    /// Core frequency.
    pub mhz: Option<u64>,
    /// Uncore frequency.
    pub uncore_mhz: Option<u64>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Whether kernel settings and interrupts are left alone.
    pub only_files: bool,
}

/// The changes that a lab setup takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabPlan {
    /// Files and settings.
    pub changes: Vec<Change>,
    /// Packages that are missing, by their names in Debian.
    pub packages: Vec<&'static str>,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// Settings of both sides while thousands of connections a second come and go. None of them is kept over a boot.
const SYSCTLS: [(&str, &str); 7] = [
    ("net.core.somaxconn", "65535"),
    ("net.ipv4.tcp_max_syn_backlog", "65535"),
    ("net.ipv4.ip_local_port_range", "1024 65535"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    ("net.ipv4.tcp_fin_timeout", "10"),
    ("net.ipv4.tcp_max_tw_buckets", "2000000"),
    ("net.ipv4.tcp_window_scaling", "1"),
];

impl Lab {
    /// Works out files, settings and what is missing.
    ///
    /// # Errors
    /// A sentence: what was asked cannot be had on this host.
    pub fn plan(&self, host: &Host) -> Result<LabPlan, String> {
        if !self.dir.starts_with('/') || self.dir.contains(|c: char| c.is_whitespace() || "\"'$`\\;".contains(c)) {
            return Err(format!("--dir must be an absolute path without spaces and quotes, not '{}'", self.dir));
        }
        let cpu = Cpu::of(host);
        for (option, cores) in [("--haproxy-cores", &self.cores), ("--backend-cores", &self.backend_cores)] {
            if let Some(absent) = cores.iter().find(|core| !cpu.online.is_empty() && !cpu.online.contains(core)) {
                return Err(format!("{option}: there is no processor {absent} here"));
            }
        }
        let mut plan = LabPlan::default();
        self.files(&mut plan);
        self.missing(host, &mut plan);
        if self.mode == Mode::Sw && !cpu.missing_for_lanes().is_empty() && cpu.is_known() && self.role == Role::Server {
            plan.notes.push("this processor has no AVX-512 IFMA: eight lanes will be slower than one at a time".into());
        }
        if self.mode == Mode::Hw && self.role == Role::Server {
            let (devices, _) = crate::facts::devices(host);
            if devices.iter().all(|device| device.has_asymmetric() == Some(false)) {
                plan.notes.push(
                    "no QuickAssist device with asymmetric crypto is here: 'penstock doctor' says what is missing"
                        .into(),
                );
            }
        }
        if !self.only_files {
            self.settings(host, &mut plan)?;
        }
        Ok(plan)
    }

    fn files(&self, plan: &mut LabPlan) {
        let mut file = |name: &str, text: &str| {
            plan.changes.push(Change::File { path: format!("{}/{name}", self.dir), text: self.filled(text) });
        };
        match self.role {
            Role::Server => {
                file("proxy.cfg", include_str!("lab/proxy.cfg"));
                file("nginx.conf", include_str!("lab/nginx.conf"));
                file("start.sh", include_str!("lab/start.sh"));
                file("stop.sh", include_str!("lab/stop.sh"));
            }
            Role::Client => file("load.sh", include_str!("lab/load.sh")),
        }
    }

    /// A template with its places filled.
    fn filled(&self, template: &str) -> String {
        let threads = self.nbthread.unwrap_or(self.cores.len().max(1) as u32);
        let list = |cores: &[u32]| cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let map = match (self.cores.len() as u32, &self.cores) {
            (0, _) => String::new(),
            (count, cores) if count == threads => {
                format!(
                    "    cpu-map auto:1/1-{threads} {}\n",
                    cores.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
                )
            }
            // More threads than cores, or fewer: all on all of them.
            (_, cores) => format!(
                "    cpu-map 1/1-{threads} {}\n",
                cores.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
            ),
        };
        let engine = match (self.is_haproxy, self.mode) {
            (true, Mode::Native) => String::new(),
            // QAT_Engine decides by itself what computes: QAT_SW where there is no device.
            (true, _) => "    ssl-engine qatengine algo ALL\n    ssl-mode-async\n".into(),
            (false, mode) => format!("    tune.crypto.engine {}\n", mode.name()),
        };
        let pin = |cores: &[u32]| if cores.is_empty() { String::new() } else { format!("taskset -c {} ", list(cores)) };
        let workers = self.backend_workers.unwrap_or(self.backend_cores.len().max(1) as u32);
        let newkey = CERTIFICATES.iter().find(|(name, _)| *name == self.certificate).map_or("rsa:2048", |(_, key)| key);
        let (port, backend_port) = self.ports;
        let fills = [
            ("@MODE@", self.mode.name().to_owned()),
            ("@KEEPALIVE@", if self.keep_alive { "on" } else { "off" }.to_owned()),
            ("@CONNECTION@", if self.keep_alive { "option http-keep-alive" } else { "option httpclose" }.to_owned()),
            // Without either, the proxy takes every processor by itself.
            (
                "@NBTHREAD@",
                if self.nbthread.is_none() && self.cores.is_empty() {
                    String::new()
                } else {
                    format!("    nbthread {threads}\n")
                },
            ),
            ("@THREADS@", threads.max(1).to_string()),
            ("@CPUMAP@", map),
            ("@ENGINE@", engine),
            ("@PORT@", port.to_string()),
            ("@BACKENDPORT@", backend_port.to_string()),
            ("@SERVERS@", format!("    server nginx 127.0.0.1:{backend_port}")),
            ("@WORKERS@", workers.to_string()),
            ("@CERTIFICATE@", self.certificate.to_owned()),
            ("@NEWKEY@", newkey.to_owned()),
            ("@PINBACKEND@", pin(&self.backend_cores)),
            ("@PIN@", pin(&self.cores)),
            ("@PROXY@", self.proxy.clone()),
            ("@DIR@", self.dir.clone()),
        ];
        fills.iter().fold(template.to_owned(), |text, (place, fill)| text.replace(place, fill))
    }

    fn missing(&self, host: &Host, plan: &mut LabPlan) {
        let mut needed: Vec<(&str, &'static str)> = match self.role {
            Role::Server => vec![("nginx", "nginx"), ("openssl", "openssl")],
            Role::Client => vec![("wrk", "wrk")],
        };
        if self.is_haproxy && self.role == Role::Server {
            needed.push(("haproxy", "haproxy"));
        }
        if !self.cores.is_empty() || !self.backend_cores.is_empty() {
            needed.push(("taskset", "util-linux"));
        }
        let there = |program: &str| {
            let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/sbin", "/bin"];
            places.iter().any(|place| host.exists(&format!("{place}/{program}")))
        };
        plan.packages = needed.into_iter().filter(|(program, _)| !there(program)).map(|(_, package)| package).collect();
    }

    fn settings(&self, host: &Host, plan: &mut LabPlan) -> Result<(), String> {
        let value = |path: String, value: &str| Change::Value { path, value: value.into(), udev: None };
        for (name, wanted) in SYSCTLS {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            match host.text(&path) {
                Some(now) if now.split_whitespace().eq(wanted.split_whitespace()) => {}
                Some(_) => plan.changes.push(value(path, wanted)),
                None => plan.notes.push(format!("{name} is not there: left out")),
            }
        }
        for name in &self.irq_devices {
            let interface = interfaces(host).into_iter().find(|interface| interface.name == *name);
            let interface =
                interface.ok_or_else(|| format!("--bind-irq-devices: there is no network device '{name}' here"))?;
            if self.cores.is_empty() {
                return Err("--bind-irq-devices needs the processors to bind to: --haproxy-cores".into());
            }
            if interface.interrupts.is_empty() {
                plan.notes.push(format!("{name} has no interrupts of its own: nothing to bind"));
            }
            for (at, (number, _)) in interface.interrupts.iter().enumerate() {
                let core = self.cores[at % self.cores.len()];
                plan.changes.push(value(format!("/proc/irq/{number}/smp_affinity_list"), &core.to_string()));
            }
        }
        self.frequencies(host, plan)
    }

    fn frequencies(&self, host: &Host, plan: &mut LabPlan) -> Result<(), String> {
        const CORE: &str = "/sys/devices/system/cpu/cpufreq";
        const UNCORE: &str = "/sys/devices/system/cpu/intel_uncore_frequency";
        let value = |path: String, value: String| Change::Value { path, value, udev: None };
        let policies = host.list(CORE);
        let settable = |file: &str| {
            policies
                .iter()
                .filter(|policy| host.exists(&format!("{CORE}/{policy}/{file}")))
                .cloned()
                .collect::<Vec<_>>()
        };
        if let Some(governor) = &self.governor {
            let with = settable("scaling_governor");
            let Some(first) = with.first() else {
                return Err(
                    "--governor: this host shows no frequency governor (a virtual machine mostly has none)".into()
                );
            };
            let known = host.text(&format!("{CORE}/{first}/scaling_available_governors"));
            if let Some(known) = known.filter(|known| !known.split_whitespace().any(|name| name == governor)) {
                return Err(format!("--governor: there is no '{governor}' here, but {known}"));
            }
            plan.changes
                .extend(with.iter().map(|policy| value(format!("{CORE}/{policy}/scaling_governor"), governor.clone())));
        }
        if let Some(mhz) = self.mhz {
            let with = settable("scaling_max_freq");
            if with.is_empty() {
                return Err("--freq: this host shows no core frequencies (a virtual machine mostly has none)".into());
            }
            for policy in with {
                let at = |file: &str| format!("{CORE}/{policy}/{file}");
                let least = host.number(&at("cpuinfo_min_freq")).unwrap_or(0) / 1000;
                let most = host.number(&at("cpuinfo_max_freq")).unwrap_or(u64::MAX) / 1000;
                if mhz < least || mhz > most {
                    return Err(format!("--freq {mhz}: this processor runs at {least} to {most} MHz"));
                }
                let khz = (mhz * 1000).to_string();
                plan.changes.push(value(at("scaling_max_freq"), khz.clone()));
                if host.exists(&at("scaling_min_freq")) {
                    plan.changes.push(value(at("scaling_min_freq"), khz));
                }
            }
        }
        if let Some(mhz) = self.uncore_mhz {
            let packages: Vec<String> =
                host.list(UNCORE).into_iter().filter(|name| name.starts_with("package")).collect();
            if packages.is_empty() {
                return Err("--uncore: this host shows no uncore frequencies (modprobe intel-uncore-frequency)".into());
            }
            for package in packages {
                let at = |file: &str| format!("{UNCORE}/{package}/{file}");
                let most = host.number(&at("initial_max_freq_khz")).unwrap_or(u64::MAX) / 1000;
                if mhz == 0 || mhz > most {
                    return Err(format!("--uncore {mhz}: this package runs at up to {most} MHz"));
                }
                let khz = (mhz * 1000).to_string();
                plan.changes.push(value(at("max_freq_khz"), khz.clone()));
                if host.exists(&at("min_freq_khz")) {
                    plan.changes.push(value(at("min_freq_khz"), khz));
                }
            }
        }
        Ok(())
    }
}

/// A list of processors as it is typed.
///
/// # Errors
/// If the text is not such a list.
pub fn cores(option: &str, text: &str) -> Result<Vec<u32>, String> {
    let cores = range(text);
    if cores.is_empty() {
        Err(format!("{option} cannot be '{text}': expected processors, as in 0-7,16"))
    } else {
        Ok(cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        Lab {
            role: Role::Server,
            mode: Mode::Sw,
            dir: "/lab".into(),
            proxy: "/usr/bin/penstock".into(),
            is_haproxy: false,
            cores: vec![0, 1, 2, 3],
            nbthread: None,
            backend_cores: vec![4, 5],
            backend_workers: None,
            keep_alive: false,
            certificate: "rsa2048",
            ports: (8443, 8180),
            irq_devices: vec!["ens1f0".into()],
            mhz: Some(2000),
            uncore_mhz: Some(1600),
            governor: Some("performance".into()),
            only_files: false,
        }
    }

    fn xeon() -> Host {
        Host::recorded(include_str!("../tests/hosts/xeon-qat.host")).unwrap()
    }

    fn file(plan: &LabPlan, name: &str) -> String {
        let file = plan.changes.iter().find_map(|change| match change {
            Change::File { path, text } if path.ends_with(name) => Some(text.clone()),
            _ => None,
        });
        file.unwrap_or_else(|| panic!("{name} is not written"))
    }

    #[test]
    fn the_server_side_is_bound_and_switched_as_asked() {
        let plan = lab().plan(&xeon()).unwrap();
        let cfg = file(&plan, "proxy.cfg");
        assert!(
            cfg.contains("nbthread 4\n    cpu-map auto:1/1-4 0 1 2 3\n    tune.crypto.engine sw\n")
                && cfg.contains("option httpclose"),
            "{cfg}"
        );
        let start = file(&plan, "start.sh");
        assert!(start.contains("taskset -c 4,5 nginx -c \"/lab/nginx.conf\"") && start.contains("rsa:2048"), "{start}");
        assert!(file(&plan, "nginx.conf").contains("worker_processes 2;"));
        for change in &plan.changes {
            let shown = change.to_string();
            assert!(!shown.contains('@') || shown.contains("$@"), "{shown}");
        }
        let values: Vec<(&str, &str)> = plan
            .changes
            .iter()
            .filter_map(|c| match c {
                Change::Value { path, value, .. } => Some((path.as_str(), value.as_str())),
                _ => None,
            })
            .collect();
        assert!(values.contains(&("/proc/irq/105/smp_affinity_list", "1")), "the sixth of eight, over four processors");
        assert!(values.contains(&("/sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq", "2000000")));
        assert!(values.contains(&("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535")));
        assert_eq!(plan.packages, ["nginx", "openssl", "util-linux"]);
    }

    #[test]
    fn haproxy_is_set_up_with_its_own_words() {
        let haproxy = Lab { is_haproxy: true, proxy: "haproxy".into(), mode: Mode::Hw, ..lab() };
        let plan = haproxy.plan(&xeon()).unwrap();
        assert!(file(&plan, "proxy.cfg").contains("ssl-engine qatengine algo ALL\n    ssl-mode-async\n"));
        assert!(file(&plan, "start.sh").contains("\nhaproxy -f \"/lab/proxy.cfg\" -D ||"));
        assert!(plan.packages.contains(&"haproxy"));
        let client = Lab { role: Role::Client, ..lab() };
        assert!(file(&client.plan(&xeon()).unwrap(), "load.sh").contains("taskset -c 0,1,2,3 wrk -t 4 -c 1600"));
    }

    #[test]
    fn what_this_host_cannot_is_said() {
        let laptop = Host::recorded(include_str!("../tests/hosts/laptop.host")).unwrap();
        let bare = Lab {
            cores: vec![0],
            backend_cores: vec![],
            irq_devices: vec![],
            mhz: None,
            uncore_mhz: None,
            governor: None,
            ..lab()
        };
        let plan = bare.plan(&laptop).unwrap();
        assert!(plan.notes.iter().any(|note| note.contains("no AVX-512 IFMA")), "{plan:?}");
        let hw = Lab { mode: Mode::Hw, ..bare.clone() };
        assert!(hw.plan(&laptop).unwrap().notes.iter().any(|note| note.contains("no QuickAssist device")));
        for (wrong, said) in [
            (Lab { cores: vec![64], ..bare.clone() }, "there is no processor 64"),
            (Lab { irq_devices: vec!["eth9".into()], ..bare.clone() }, "there is no network device 'eth9'"),
            (Lab { mhz: Some(9000), ..bare.clone() }, "runs at 0 to 3400 MHz"),
            (Lab { uncore_mhz: Some(1000), ..bare.clone() }, "shows no uncore frequencies"),
            (Lab { dir: "relative".into(), ..bare.clone() }, "must be an absolute path"),
            (Lab { dir: "/a b".into(), ..bare.clone() }, "must be an absolute path"),
        ] {
            let why = wrong.plan(&laptop).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        assert!(cores("--haproxy-cores", "x").is_err() && cores("--haproxy-cores", "3-1").is_err());
    }
}
