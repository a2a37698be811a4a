//! What is made from the tables of options and commands: manual pages and completion. `make generate` writes them anew.

mod common;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Each file below `packaging`, and what prints it.
const MADE: [(&str, &[&str]); 6] = [
    ("man/penstock.8", &["man", "penstock"]),
    ("man/penstock-ctl.1", &["man", "penstock-ctl"]),
    ("man/penstock.cfg.5", &["man", "penstock.cfg"]),
    ("completion/penstock.bash", &["completion", "bash"]),
    ("completion/_penstock", &["completion", "zsh"]),
    ("completion/penstock.fish", &["completion", "fish"]),
];

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn made(arguments: &[&str]) -> String {
    let output = common::penstock().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn manual_pages_and_completion_are_fresh() {
    for (file, arguments) in MADE {
        let fresh = made(arguments);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(packaging(file), &fresh).unwrap();
        }
        let kept = std::fs::read_to_string(packaging(file)).unwrap_or_default();
        assert!(kept == fresh, "packaging/{file} is stale: run `make generate`");
    }
}

#[test]
fn what_is_not_made_is_said() {
    for arguments in [&["man", "haproxy"][..], &["man"], &["completion", "csh"], &["completion", "zsh", "haproxy"]] {
        let output = common::penstock().args(arguments).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(arguments[0]), "{arguments:?}");
    }
}

/// What a program says to this text.
fn said(program: &mut Command, text: &str) -> String {
    use std::io::Write;
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn troff_has_nothing_to_say_about_the_pages() {
    for (_, arguments) in MADE.iter().filter(|(file, _)| file.starts_with("man/")) {
        let page = made(arguments);
        assert_eq!(said(Command::new("groff").args(["-ww", "-man", "-Tutf8", "-z"]), &page), "", "{arguments:?}");
        // The test of this test: a request that does not exist is reported.
        let wrong = said(Command::new("groff").args(["-ww", "-man", "-Tutf8", "-z"]), &(page + ".nonsense\n"));
        assert!(wrong.contains("nonsense"), "{wrong}");
    }
}

#[test]
fn a_page_has_every_option_and_command() {
    let page = said(Command::new("groff").args(["-man", "-Tascii", "-P-cbou"]), &made(&["man", "penstock"]));
    for wanted in ["-sf <pid>...", "-dM[byte]", "-dS", "penstock bench load URL [options]", "--measure", "SIGUSR2"] {
        assert!(page.contains(wanted), "{wanted}:\n{page}");
    }
    let page = said(Command::new("groff").args(["-man", "-Tascii", "-P-cbou"]), &made(&["man", "penstock-ctl"]));
    for wanted in ["--interval SECONDS", "show servers state", "(admin)"] {
        assert!(page.contains(wanted), "{wanted}:\n{page}");
    }
}

/// A line that is typed; some of what it may go on with, and something it may not.
const TYPED: [(&str, &[&str], &str); 10] = [
    ("penstock ", &["quickstart", "ctl", "bench", "man"], "load"),
    ("penstock qui", &["quickstart"], "ctl"),
    ("penstock -d", &["-db", "-dM", "-dV"], "-f"),
    ("penstock -f penstock.cfg -s", &["-sf", "-st"], "-c"),
    ("penstock bench load --t", &["--tls", "--timeout"], "--streams"),
    ("penstock bench load --tls ", &["1.2", "1.3"], "--json"),
    ("penstock bench study hand", &["handshake", "handshake-modes"], "offload"),
    ("haproxy -d", &["-db", "-dM", "-dV"], "-f"),
    ("penstock ctl show serv", &["servers"], "info"),
    ("penstock ctl -s /run/s watch show servers ", &["conn", "state"], "--json"),
];

/// What a shell offers for each line.
fn check(offers: impl Fn(&str) -> Vec<String>) {
    for (line, wanted, unwanted) in TYPED {
        let offered = offers(line);
        for word in wanted {
            assert!(offered.iter().any(|offer| offer == word), "'{line}' has no {word}: {offered:?}");
        }
        assert!(!offered.iter().any(|offer| offer == unwanted), "'{line}' has {unwanted}: {offered:?}");
    }
}

#[test]
fn bash_completes() {
    let script = made(&["completion", "bash"]);
    check(|line| {
        let words = line.replace(" ", "' '");
        let asked = format!(
            "{script}\nCOMP_WORDS=('{words}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _penstock; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        said(&mut Command::new("bash"), &asked).lines().map(str::to_owned).collect()
    });
}

#[test]
fn fish_completes() {
    let script = made(&["completion", "fish"]);
    check(|line| {
        let answer = said(Command::new("fish").arg("--no-config"), &format!("{script}\ncomplete -C '{line}'\n"));
        answer.lines().map(|offer| offer.split('\t').next().unwrap_or_default().to_owned()).collect()
    });
}

/// A shell in a terminal of its own, with the completion system loaded from where the package puts the script, types the line
/// and the key that lists what may follow.
#[test]
fn zsh_completes() {
    let folder = common::Place::new("zsh");
    folder.file("_penstock", &made(&["completion", "zsh"]));
    check(|line| {
        let asked = ZSH.replace("@FOLDER@", &folder.0.display().to_string()).replace("@LINE@", line);
        let answer = said(Command::new("timeout").args(["60", "zsh", "-f", "-s"]), &asked);
        let offers = answer.lines().filter_map(|offer| offer.trim_end_matches('\r').strip_prefix("offer "));
        offers.map(str::to_owned).collect()
    });
}

const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
expect() {
    local piece
    while zpty -r shell piece; do
        print -r -- "$piece"
        [[ $piece == *$1* ]] && return
    done
}
zpty -w shell 'PROMPT=; fpath=(@FOLDER@ $fpath); autoload -Uz compinit; compinit -u -D'
zpty -w shell 'compadd() { local -a hits; builtin compadd -O hits "$@"; (( $#hits )) && print -rl -- "" "offer "${^hits}; builtin compadd "$@" }'
zpty -w shell 'finish() { print; print all-""offers }; zle -N finish; bindkey "^X" finish; bindkey "^I" list-choices'
zpty -w shell 'print rea""dy'
expect ready > /dev/null
zpty -w -n shell $'@LINE@\t\x18'
expect all-offers
zpty -d shell
"#;
