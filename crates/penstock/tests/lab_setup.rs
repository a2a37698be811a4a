//! `penstock lab-setup` on the real binary, on a copy of a host: set up, switched, and put back.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn shown(arguments: &[&str]) -> String {
    let output = run(&[&["lab-setup"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = run(&[&["lab-setup"], arguments].concat());
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("penstock: lab-setup: ") && !said.contains("panicked"), "{said}");
    said
}

/// Every file below a directory, and what is in it.
fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            match entry.path().is_dir() {
                true => left.push(entry.path()),
                false => drop(found.insert(entry.path(), std::fs::read_to_string(entry.path()).unwrap())),
            }
        }
    }
    found
}

#[test]
fn a_lab_is_set_up_switched_and_put_back() {
    let root = std::env::temp_dir().join(format!("penstock-lab-{}", std::process::id()));
    for (path, text) in [
        ("proc/sys/net/core/somaxconn", "4096\n"),
        ("proc/sys/net/ipv4/tcp_fin_timeout", "60\n"),
        ("proc/cpuinfo", "processor : 0\n\nprocessor : 1\n"),
        ("usr/sbin/nginx", ""),
        ("usr/bin/openssl", ""),
        ("usr/bin/taskset", ""),
    ] {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), text).unwrap();
    }
    let before = files(&root);
    let host = root.to_str().unwrap();
    let common = ["--role", "server", "--haproxy-cores", "0-1", "--host", host, "--dir", "/lab"];
    let with = |more: &[&'static str]| [&common[..], more].concat();

    let plan = shown(&with(&["--mode", "sw"]));
    assert!(
        plan.contains("echo 65535 > /proc/sys/net/core/somaxconn") && plan.contains("Nothing was changed"),
        "{plan}"
    );
    assert_eq!(files(&root), before);

    shown(&with(&["--mode", "sw", "-y"]));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert!(read("lab/proxy.cfg").contains("tune.crypto.engine sw"));
    assert_eq!(read("proc/sys/net/core/somaxconn"), "65535");
    shown(&with(&["--mode", "native", "--keep-alive", "off", "-y"]));
    assert!(
        read("lab/proxy.cfg").contains("tune.crypto.engine native")
            && read("lab/proxy.cfg").contains("option httpclose")
    );

    // What is written is a configuration that can start, once start.sh has made its certificate.
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::create_dir_all(root.join("lab/run")).unwrap();
    let pem = root.join("lab/run/site.pem");
    std::fs::write(&pem, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let config = root.join("lab/here.cfg");
    std::fs::write(&config, read("lab/proxy.cfg").replace("/lab/", &format!("{host}/lab/"))).unwrap();
    let checked = run(&["-c", "-f", config.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    std::fs::remove_file(config).unwrap();

    let told = shown(&["--undo", "--host", host, "--dir", "/lab"]);
    assert!(told.contains("/proc/sys/net/core/somaxconn: 4096 again"), "{told}");
    assert_eq!(files(&root), before);
    assert!(!root.join("lab").exists());
    assert!(refused(&["--undo", "--host", host, "--dir", "/lab"]).contains("nothing to undo"));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn nonsense_is_answered_in_a_sentence() {
    for (arguments, said) in [
        (&[][..], "say --role: server, client"),
        (&["--role", "judge"], "--role cannot be 'judge'"),
        (&["--role", "server", "--mode", "gpu"], "--mode cannot be 'gpu'"),
        (&["--role", "server", "--nbthread", "0"], "--nbthread cannot be '0'"),
        (&["--role", "server", "--nbthread", "-1"], "--nbthread cannot be '-1'"),
        (&["--role", "server", "--haproxy-cores", "x"], "--haproxy-cores cannot be 'x'"),
        (&["--role", "server", "--haproxy-cores", "5000"], "there is no processor 5000 here"),
        (&["--role", "server", "--port", "99999"], "--port cannot be '99999'"),
        (&["--role", "server", "--freq", "NaN"], "--freq cannot be 'NaN'"),
        (&["--role", "server", "--dir", "here"], "--dir must be an absolute path"),
        (&["--role", "server", "--bind-irq-devices", "nonexistent0"], "there is no network device 'nonexistent0'"),
        (&["--role", "server", "--certificate", "dsa"], "--certificate cannot be 'dsa'"),
        (&["server"], "'server' is not understood"),
    ] {
        let all = refused(arguments);
        assert!(all.contains(said), "{arguments:?}: {all}");
    }
}
