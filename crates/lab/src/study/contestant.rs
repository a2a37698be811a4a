//! The contestants: programs, and the modes that each is measured in.

use super::orchestration;
use penstock_doctor::{Cpu, Host};
use serde::{Deserialize, Serialize};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program that terminates TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// penstock itself.
    Penstock,
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
    /// Squid.
    Squid,
    /// SSLsplit.
    Sslsplit,
}

/// A row of the table below.
struct Entry {
    name: &'static str,
    program: Program,
    /// The mode of the planner in which its rates count.
    mode: Option<&'static str>,
    doc: &'static str,
    /// Lines of its `global` section.
    global: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    needs: Needs,
    /// The only study that it takes part in; none: all.
    study: Option<&'static str>,
}

/// What a contestant needs to take part, beside the program.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    /// AVX-512 IFMA, which the contestant is then told not to use.
    Ifma,
    /// All that the lanes are made of.
    Lanes,
    /// A QuickAssist device, or a double of one, in penstock's own view.
    Device,
    /// HAProxy takes the lines of its `global` section: only it knows which OpenSSL it is linked to, and what that can load.
    Acceptance,
    /// Squid was built with what ssl-bump needs.
    Bump,
}

const ORCHESTRATION: Option<&str> = Some("orchestration");

/// AVX-512 IFMA is bit 21 of EBX of CPUID leaf 7, the low half of the second word of OpenSSL's vector: without it OpenSSL
/// computes RSA as it did on the processors of the older papers.
const NO_IFMA: (&str, &str) = ("OPENSSL_ia32cap", ":~0x200000");

#[rustfmt::skip]
const TABLE: &[Entry] = &[
    Entry { name: "haproxy", program: Program::Haproxy, mode: None, doc: "HAProxy as it is installed",
        global: &[], environment: &[], needs: Needs::Nothing, study: None },
    Entry { name: "haproxy-no-ifma", program: Program::Haproxy, mode: None, doc: "HAProxy, OpenSSL without AVX-512 IFMA: the baseline of the older papers",
        global: &[], environment: &[NO_IFMA], needs: Needs::Ifma, study: None },
    Entry { name: "haproxy-qat", program: Program::Haproxy, mode: None, doc: "HAProxy with QAT_Engine, asynchronous",
        global: &["ssl-engine qatengine algo ALL", "ssl-mode-async"], environment: &[], needs: Needs::Acceptance, study: None },
    Entry { name: "haproxy-qatprovider", program: Program::Haproxy, mode: None, doc: "HAProxy with the QAT provider",
        global: &["ssl-provider qatprovider", "ssl-provider default", "ssl-mode-async"], environment: &[], needs: Needs::Acceptance, study: None },
    Entry { name: "nginx", program: Program::Nginx, mode: None, doc: "nginx as it is installed",
        global: &[], environment: &[], needs: Needs::Nothing, study: None },
    Entry { name: "penstock-native", program: Program::Penstock, mode: Some("native"), doc: "penstock, each operation by itself",
        global: &["tune.crypto.engine native"], environment: &[], needs: Needs::Nothing, study: None },
    Entry { name: "penstock-sw", program: Program::Penstock, mode: Some("sw"), doc: "penstock, eight lanes at a time",
        global: &["tune.crypto.engine sw"], environment: &[], needs: Needs::Lanes, study: None },
    Entry { name: "penstock-hw", program: Program::Penstock, mode: Some("hw"), doc: "penstock, a QuickAssist device",
        global: &["tune.crypto.engine hw"], environment: &[], needs: Needs::Device, study: None },
    Entry { name: "penstock-hw+sw", program: Program::Penstock, mode: Some("hw+sw"), doc: "penstock, a QuickAssist device and eight lanes",
        global: &["tune.crypto.engine hw+sw"], environment: &[], needs: Needs::Device, study: None },
    Entry { name: "penstock-tcp", program: Program::Penstock, mode: None, doc: "penstock in mode tcp, which passes bytes on without a look",
        global: &[], environment: &[], needs: Needs::Nothing, study: ORCHESTRATION },
    Entry { name: "squid", program: Program::Squid, mode: None, doc: "Squid as it is installed, with ssl-bump",
        global: &[], environment: &[], needs: Needs::Bump, study: ORCHESTRATION },
    Entry { name: "sslsplit", program: Program::Sslsplit, mode: None, doc: "SSLsplit as it is installed, which forges and asks no service",
        global: &[], environment: &[], needs: Needs::Nothing, study: ORCHESTRATION },
];

/// The machine, and where its programs are.
pub struct Surroundings<'a> {
    /// This machine.
    pub host: &'a Host,
    /// penstock's binary.
    pub penstock: PathBuf,
    /// HAProxy's binary, where it is not found by itself.
    pub haproxy: Option<PathBuf>,
    /// nginx's binary, where it is not found by itself.
    pub nginx: Option<PathBuf>,
    /// Squid's binary, where it is not found by itself.
    pub squid: Option<PathBuf>,
    /// SSLsplit's binary, where it is not found by itself.
    pub sslsplit: Option<PathBuf>,
    /// A directory with libqat, where the system's loader is not to choose: those of a driver, or of the device double.
    pub qat_libraries: Option<PathBuf>,
}

/// A program that takes part in a study, in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contestant {
    /// The contestant's name: `penstock-sw`.
    pub name: String,
    /// What the contestant is, for people.
    pub doc: String,
    /// The program.
    pub program: Program,
    /// The program's file; a result keeps only the name, since the host's paths are its own affair.
    #[serde(serialize_with = "name_alone")]
    pub path: PathBuf,
    /// The lines in which the program states its version.
    pub version: Vec<String>,
    /// The planner's mode that its rates stand for.
    pub mode: Option<String>,
    /// Lines of the configuration's `global` section, and of Squid's.
    pub global: Vec<String>,
    /// Environment variables that the program is started with, as name and value.
    pub environment: Vec<(String, String)>,
    /// Whether the device is a double of one, made of this machine's processors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub double: bool,
    /// The configuration it was last started with.
    #[serde(default)]
    pub configuration: String,
}

impl Contestant {
    /// The file name of the program.
    #[must_use]
    pub fn program_name(&self) -> String {
        file_name(&self.path)
    }
}

/// The last part of a path.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn name_alone<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&file_name(path))
}

/// Names and what they are, for the help.
pub fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|entry| (entry.name, entry.doc))
}

/// Who was asked to take part in a study.
#[derive(Debug)]
pub struct Entrants {
    /// The contestants that can take part.
    pub present: Vec<Contestant>,
    /// The names of those that cannot, each with the reason.
    pub absent: Vec<(String, String)>,
}

/// The contestants of the table that take part in this study, or those of these names.
///
/// # Errors
/// A name is not in the table.
pub fn choose(study: &str, names: &[String], around: &Surroundings) -> Result<Entrants, String> {
    if let Some(unknown) = names.iter().find(|name| !TABLE.iter().any(|entry| entry.name == **name)) {
        let all: Vec<_> = TABLE.iter().map(|entry| entry.name).collect();
        return Err(format!("there is no contestant '{unknown}': {} are", all.join(", ")));
    }
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for entry in TABLE {
        let elsewhere = entry.study.filter(|own| *own != study);
        if !if names.is_empty() { elsewhere.is_none() } else { names.iter().any(|name| name == entry.name) } {
            continue;
        }
        let entered =
            elsewhere.map_or_else(|| enter(entry, around), |own| Err(format!("it takes part in {own} alone")));
        match entered {
            Ok(contestant) => present.push(contestant),
            Err(why) => absent.push((entry.name.to_owned(), why)),
        }
    }
    Ok(Entrants { present, absent })
}

fn enter(entry: &Entry, around: &Surroundings) -> Result<Contestant, String> {
    let path = match entry.program {
        Program::Penstock => around.penstock.clone(),
        Program::Haproxy => program("haproxy", around.haproxy.as_deref())?,
        Program::Nginx => program("nginx", around.nginx.as_deref())?,
        Program::Squid => program("squid", around.squid.as_deref())?,
        Program::Sslsplit => program("sslsplit", around.sslsplit.as_deref())?,
    };
    let mut environment: Vec<(String, String)> =
        entry.environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if let (Needs::Device, Some(libraries)) = (entry.needs, &around.qat_libraries) {
        environment.push(("LD_LIBRARY_PATH".into(), libraries.display().to_string()));
    }
    let flag = match entry.program {
        Program::Nginx | Program::Sslsplit => "-V",
        Program::Squid => "-v",
        Program::Penstock | Program::Haproxy => "-vv",
    };
    let text =
        said_in(&path, &[flag], &environment).ok_or_else(|| format!("{} {flag} does not run", path.display()))?;
    let mut double = false;
    let mut global: Vec<String> = entry.global.iter().map(|line| (*line).to_owned()).collect();
    match entry.needs {
        Needs::Nothing => {}
        Needs::Ifma if Cpu::of(around.host).has("avx512ifma") => {}
        Needs::Ifma => return Err("this processor has no AVX-512 IFMA to do without: it is 'haproxy'".into()),
        Needs::Lanes => {
            let missing = Cpu::of(around.host).missing_for_lanes();
            if !missing.is_empty() {
                return Err(format!("this processor lacks {}", missing.join(", ")));
            }
        }
        Needs::Device => double = device_is_double(&text)?,
        Needs::Acceptance => accepted(&path, entry.global)?,
        Needs::Bump => global.push(orchestration::helper_line(&text)?),
    }
    // A double's figures are not those of any device: they bear another name wherever they are shown, and stand for no mode of the
    // planner's.
    let (mark, explained) =
        if double { ("-double", ", which is a double made of this machine's processors") } else { ("", "") };
    Ok(Contestant {
        name: format!("{}{mark}", entry.name),
        doc: format!("{}{explained}", entry.doc),
        program: entry.program,
        path,
        version: text.lines().filter(|line| tells_a_version(line)).map(str::to_owned).collect(),
        mode: entry.mode.filter(|_| !double).map(str::to_owned),
        global,
        environment,
        double,
        configuration: String::new(),
    })
}

/// What `penstock -vv` says of the device: that there is none and why, or instances by their parts.
fn device_is_double(text: &str) -> Result<bool, String> {
    let mut rows = text.lines().map(str::trim).skip_while(|line| !line.starts_with("QuickAssist"));
    let found = rows.next().and_then(|row| row.strip_prefix("QuickAssist")).map_or("", str::trim);
    match found.strip_prefix("no: ") {
        Some(why) => Err(why.to_owned()),
        None if found.is_empty() => Err("this penstock knows no QuickAssist devices".into()),
        None => Ok(rows.any(|row| row.contains(" double, device "))),
    }
}

/// Whether HAProxy takes these lines; where it does not, in its own words.
fn accepted(haproxy: &Path, global: &[&str]) -> Result<(), String> {
    let mut file = tempfile::NamedTempFile::new().map_err(|e| format!("no file for a configuration: {e}"))?;
    writeln!(file, "global\n    {}", global.join("\n    "))
        .map_err(|e| format!("cannot write a configuration: {e}"))?;
    let mut command = Command::new(haproxy);
    let output = command.args(["-c", "-f"]).arg(file.path()).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{}: {e}", haproxy.display()))?;
    // 2: there is no error, and no listener either.
    if matches!(output.status.code(), Some(0 | 2)) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let alert = text.lines().find(|line| line.contains("[ALERT]")).unwrap_or("it says nothing");
    let why = alert.split(" : ").skip(1).collect::<Vec<_>>().join(": ");
    let why = why.replace(&file.path().display().to_string(), "configuration");
    Err(format!("this HAProxy does not take '{}': {}", global[0], if why.is_empty() { alert } else { &why }))
}

/// Of what programs say of themselves: their own version, compiler and library.
fn tells_a_version(line: &str) -> bool {
    let line = line.trim().to_ascii_lowercase();
    [
        "haproxy version",
        "nginx version",
        "squid cache: version",
        "sslsplit ",
        "rtlinked against openssl",
        "this binary uses openssl",
        "penstock version",
        "built with gcc",
        "built with clang",
        "built with openssl",
        "running on openssl",
        "built by",
        "library ",
        "profile ",
        "compiler ",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
}

/// Both outputs of a command that succeeds.
pub fn said(program: &Path, arguments: &[&str]) -> Option<String> {
    said_in(program, arguments, &[])
}

fn said_in(program: &Path, arguments: &[&str], environment: &[(String, String)]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(text)
}

/// The file of a program: as given, or in the usual places, which the search path of an ordinary user lacks in part.
///
/// # Errors
/// If there is no such file.
pub fn program(name: &str, given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = given {
        let there = path.is_file();
        return there.then(|| path.to_owned()).ok_or_else(|| format!("{} is not a file", path.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual).map(|place| place.join(name));
    places.find(|file| file.is_file()).ok_or_else(|| format!("{name} is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(host: &Host) -> Surroundings<'_> {
        Surroundings {
            host,
            penstock: "/bin/true".into(),
            haproxy: Some("/nowhere/haproxy".into()),
            nginx: None,
            squid: Some("/nowhere/squid".into()),
            sslsplit: None,
            qat_libraries: None,
        }
    }

    #[test]
    fn who_cannot_take_part_is_said_why() {
        let host =
            Host::recorded("== /proc/cpuinfo\nprocessor : 0\nvendor_id : GenuineIntel\nflags : fpu sse2\n").unwrap();
        let Entrants { present, absent } = choose("orchestration", &[], &around(&host)).unwrap();
        let reason = |name: &str| absent.iter().find(|(absent, _)| absent == name).map(|(_, why)| why.clone()).unwrap();
        assert!(present.iter().any(|one| one.name == "penstock-native"));
        assert_eq!(reason("haproxy"), "/nowhere/haproxy is not a file");
        assert_eq!(reason("squid"), "/nowhere/squid is not a file");
        assert!(reason("penstock-sw").contains("avx512ifma"), "{}", reason("penstock-sw"));
        assert_eq!(reason("penstock-hw"), "this penstock knows no QuickAssist devices");
    }

    #[test]
    fn a_name_that_is_not_in_the_table_is_refused() {
        let host = Host::recorded("== /proc/x\n").unwrap();
        let why = choose("handshake", &["envoy".into()], &around(&host)).unwrap_err();
        assert!(why.contains("no contestant 'envoy'") && why.contains("penstock-sw"), "{why}");
        let Entrants { present, absent } = choose("handshake", &["squid".into()], &around(&host)).unwrap();
        assert!(present.is_empty());
        assert_eq!(absent, [("squid".to_owned(), "it takes part in orchestration alone".to_owned())]);
        let Entrants { present, absent } = choose("handshake", &[], &around(&host)).unwrap();
        let names = present.iter().map(|one| &one.name).chain(absent.iter().map(|(name, _)| name));
        assert!(!names.into_iter().any(|name| name == "squid" || name == "penstock-tcp"));
    }

    #[test]
    fn a_device_is_what_penstock_says_it_is() {
        let card =
            "  QuickAssist      by libqat.so.4: 2 instances for crypto\n  qat0    4xxx, device 0, node 0, up: RSA\n";
        assert_eq!(device_is_double(card), Ok(false));
        assert_eq!(device_is_double(&card.replace("4xxx", "double")), Ok(true));
        assert_eq!(
            device_is_double("  QuickAssist      no: libqat is not installed\n"),
            Err("libqat is not installed".into())
        );
    }

    #[test]
    fn haproxy_says_itself_what_it_can_load() {
        let directory = tempfile::tempdir().unwrap();
        let haproxy = |script: &str| {
            let path = directory.path().join("haproxy");
            // Written by a process of its own: a file that this one has open for writing while another test forks cannot be executed.
            let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#;
            let written = std::process::Command::new("sh").args(["-c", write]).arg(&path).arg(script).status().unwrap();
            assert!(written.success());
            path
        };
        let lines = ["ssl-provider qatprovider", "ssl-mode-async"];
        // It reads the file that it is given.
        let takes_all = "grep -q 'ssl-provider qatprovider' $3 && grep -q ssl-mode-async $3 && exit 2";
        assert_eq!(accepted(&haproxy(takes_all), &lines), Ok(()));
        let refuses = "echo '[NOTICE] (1) : version' >&2; echo '[ALERT] (1) : config : unknown provider' >&2; exit 1";
        let why = accepted(&haproxy(refuses), &lines).unwrap_err();
        assert_eq!(why, "this HAProxy does not take 'ssl-provider qatprovider': config: unknown provider");
    }
}
