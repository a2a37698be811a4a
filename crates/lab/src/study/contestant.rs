//! Who is measured: programs, and the modes that each is measured in.

use penstock_doctor::{Cpu, Devices, Host};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program that terminates TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// This one.
    Penstock,
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
}

/// A row of the table below.
struct Entry {
    name: &'static str,
    program: Program,
    /// The planner's mode that its rates stand for.
    mode: Option<&'static str>,
    doc: &'static str,
    /// Lines of its `global` section.
    global: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    needs: fn(&Surroundings) -> Result<(), String>,
}

/// AVX-512 IFMA is bit 21 of EBX of CPUID leaf 7, the low half of the second word of OpenSSL's vector: without it OpenSSL
/// computes RSA as it did on the processors of the older papers.
const NO_IFMA: (&str, &str) = ("OPENSSL_ia32cap", ":~0x200000");

#[rustfmt::skip]
const TABLE: &[Entry] = &[
    Entry { name: "haproxy", program: Program::Haproxy, mode: None, doc: "HAProxy as it is installed",
        global: &[], environment: &[], needs: nothing },
    Entry { name: "haproxy-no-ifma", program: Program::Haproxy, mode: None, doc: "HAProxy, OpenSSL without AVX-512 IFMA: the baseline of the older papers",
        global: &[], environment: &[NO_IFMA], needs: ifma_to_leave_out },
    Entry { name: "haproxy-qat", program: Program::Haproxy, mode: None, doc: "HAProxy with QAT_Engine, asynchronous",
        global: &["ssl-engine qatengine algo ALL", "ssl-mode-async"], environment: &[], needs: qat_engine },
    Entry { name: "haproxy-qatprovider", program: Program::Haproxy, mode: None, doc: "HAProxy with the QAT provider",
        global: &["ssl-provider qatprovider", "ssl-provider default", "ssl-mode-async"], environment: &[], needs: qat_provider },
    Entry { name: "nginx", program: Program::Nginx, mode: None, doc: "nginx as it is installed",
        global: &[], environment: &[], needs: nothing },
    Entry { name: "penstock-native", program: Program::Penstock, mode: Some("native"), doc: "penstock, each operation by itself",
        global: &["tune.crypto.engine native"], environment: &[], needs: nothing },
    Entry { name: "penstock-sw", program: Program::Penstock, mode: Some("sw"), doc: "penstock, eight lanes at a time",
        global: &["tune.crypto.engine sw"], environment: &[], needs: lanes },
    Entry { name: "penstock-hw", program: Program::Penstock, mode: Some("hw"), doc: "penstock, a QuickAssist device",
        global: &["tune.crypto.engine hw"], environment: &[], needs: device },
    Entry { name: "penstock-hw+sw", program: Program::Penstock, mode: Some("hw+sw"), doc: "penstock, a QuickAssist device and eight lanes",
        global: &["tune.crypto.engine hw+sw"], environment: &[], needs: device },
];

/// Where programs are, and the machine.
pub struct Surroundings<'a> {
    /// This machine.
    pub host: &'a Host,
    /// penstock's binary.
    pub penstock: PathBuf,
    /// HAProxy's, where it is not found by itself.
    pub haproxy: Option<PathBuf>,
    /// nginx's, where it is not found by itself.
    pub nginx: Option<PathBuf>,
}

/// One that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contestant {
    /// `penstock-sw`
    pub name: String,
    /// What it is, for people.
    pub doc: String,
    /// The program.
    pub program: Program,
    /// Its file.
    pub path: PathBuf,
    /// What it says of itself.
    pub version: Vec<String>,
    /// The planner's mode that its rates stand for.
    pub mode: Option<String>,
    /// Lines of its `global` section.
    pub global: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// The configuration it was last started with.
    #[serde(default)]
    pub configuration: String,
}

/// Names and what they are, for the help.
pub fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|entry| (entry.name, entry.doc))
}

/// Those who can take part, and those who cannot, with the reason: all of the table, or those of these names.
///
/// # Errors
/// A name is not in the table.
#[allow(clippy::type_complexity)]
pub fn choose(names: &[String], around: &Surroundings) -> Result<(Vec<Contestant>, Vec<(String, String)>), String> {
    if let Some(unknown) = names.iter().find(|name| !TABLE.iter().any(|entry| entry.name == **name)) {
        let all: Vec<_> = TABLE.iter().map(|entry| entry.name).collect();
        return Err(format!("there is no contestant '{unknown}': {} are", all.join(", ")));
    }
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for entry in TABLE.iter().filter(|entry| names.is_empty() || names.iter().any(|name| name == entry.name)) {
        match enter(entry, around) {
            Ok(contestant) => present.push(contestant),
            Err(why) => absent.push((entry.name.to_owned(), why)),
        }
    }
    Ok((present, absent))
}

fn enter(entry: &Entry, around: &Surroundings) -> Result<Contestant, String> {
    let path = match entry.program {
        Program::Penstock => around.penstock.clone(),
        Program::Haproxy => program("haproxy", around.haproxy.as_deref())?,
        Program::Nginx => program("nginx", around.nginx.as_deref())?,
    };
    (entry.needs)(around)?;
    let flag = if entry.program == Program::Nginx { "-V" } else { "-vv" };
    let version = said(&path, &[flag]).ok_or_else(|| format!("{} {flag} does not run", path.display()))?;
    Ok(Contestant {
        name: entry.name.into(),
        doc: entry.doc.into(),
        program: entry.program,
        path,
        version: version.lines().filter(|line| tells_a_version(line)).map(str::to_owned).collect(),
        mode: entry.mode.map(str::to_owned),
        global: entry.global.iter().map(|line| (*line).to_owned()).collect(),
        environment: entry.environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        configuration: String::new(),
    })
}

/// Of what programs say of themselves: their own version, compiler and library.
fn tells_a_version(line: &str) -> bool {
    let line = line.trim().to_ascii_lowercase();
    [
        "haproxy version",
        "nginx version",
        "penstock version",
        "built with gcc",
        "built with clang",
        "built with openssl",
        "running on openssl",
        "built by",
        "library ",
        "profile ",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
}

/// Both outputs of a command that succeeds.
pub fn said(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(text)
}

/// The file of a program: as given, or in the usual places, which the search path of an ordinary user lacks in part.
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

#[allow(clippy::unnecessary_wraps)]
fn nothing(_: &Surroundings) -> Result<(), String> {
    Ok(())
}

fn lanes(around: &Surroundings) -> Result<(), String> {
    let missing = Cpu::of(around.host).missing_for_lanes();
    if missing.is_empty() { Ok(()) } else { Err(format!("this processor lacks {}", missing.join(", "))) }
}

fn ifma_to_leave_out(around: &Surroundings) -> Result<(), String> {
    let has = Cpu::of(around.host).has("avx512ifma");
    if has { Ok(()) } else { Err("this processor has no AVX-512 IFMA to do without: it is 'haproxy'".into()) }
}

fn device(around: &Surroundings) -> Result<(), String> {
    let devices = Devices::of(around.host);
    if devices.list().iter().any(|device| device.has_asymmetric() != Some(false)) {
        Ok(())
    } else {
        Err("no QuickAssist device with asymmetric crypto is here".into())
    }
}

fn qat_engine(around: &Surroundings) -> Result<(), String> {
    let haproxy = program("haproxy", around.haproxy.as_deref())?;
    if !said(&haproxy, &["-vv"]).is_some_and(|text| text.contains("+ENGINE")) {
        return Err("this HAProxy is built without engines".into());
    }
    openssl_file("-e", "qatengine.so")
}

fn qat_provider(_: &Surroundings) -> Result<(), String> {
    openssl_file("-m", "qatprovider.so")
}

/// A file in a directory that OpenSSL tells of: `ENGINESDIR: "/usr/lib/x86_64-linux-gnu/engines-3"`.
fn openssl_file(flag: &str, file: &str) -> Result<(), String> {
    let openssl = program("openssl", None)?;
    let text = said(&openssl, &["version", flag]).unwrap_or_default();
    let directory = text.split('"').nth(1).unwrap_or_default();
    let there = !directory.is_empty() && Path::new(directory).join(file).is_file();
    if there { Ok(()) } else { Err(format!("OpenSSL has no {file} here")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(host: &Host) -> Surroundings<'_> {
        Surroundings { host, penstock: "/bin/true".into(), haproxy: Some("/nowhere/haproxy".into()), nginx: None }
    }

    #[test]
    fn who_cannot_take_part_is_said_why() {
        let host =
            Host::recorded("== /proc/cpuinfo\nprocessor : 0\nvendor_id : GenuineIntel\nflags : fpu sse2\n").unwrap();
        let (present, absent) = choose(&[], &around(&host)).unwrap();
        let reason = |name: &str| absent.iter().find(|(absent, _)| absent == name).map(|(_, why)| why.clone()).unwrap();
        assert!(present.iter().any(|one| one.name == "penstock-native"));
        assert_eq!(reason("haproxy"), "/nowhere/haproxy is not a file");
        assert!(reason("penstock-sw").contains("avx512ifma"), "{}", reason("penstock-sw"));
        assert!(reason("penstock-hw").contains("no QuickAssist device"));
    }

    #[test]
    fn a_name_that_is_not_in_the_table_is_refused() {
        let host = Host::recorded("== /proc/x\n").unwrap();
        let why = choose(&["envoy".into()], &around(&host)).unwrap_err();
        assert!(why.contains("no contestant 'envoy'") && why.contains("penstock-sw"), "{why}");
    }
}
