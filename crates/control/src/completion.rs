//! Completion of commands in shells.

use crate::{Table, table::Mode};

/// A shell that completes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

impl Shell {
    /// By its name.
    pub fn parse(word: &str) -> Option<Shell> {
        match word {
            "bash" => Some(Shell::Bash),
            "zsh" => Some(Shell::Zsh),
            "fish" => Some(Shell::Fish),
            _ => None,
        }
    }
}

/// The script that completes `penstock ctl` with the words of a table's commands, one word at a time.
pub fn script(table: &Table, shell: Shell) -> String {
    let shown = table.entries().filter(|entry| !entry.usage.is_empty() && entry.mode == Mode::Always);
    let mut names: Vec<&str> = shown.map(|entry| entry.words).collect();
    names.sort_unstable();
    let names = names.join("\n");
    match shell {
        Shell::Bash => format!("{}{names}{BASH}complete -F _penstock_ctl penstock\n", "_penstock_ctl_commands='"),
        Shell::Zsh => format!(
            "#compdef penstock\nautoload -Uz bashcompinit && bashcompinit\n_penstock_ctl_commands='{names}{BASH}complete -F _penstock_ctl penstock\n"
        ),
        Shell::Fish => format!("set -g __penstock_ctl_commands '{names}'{FISH}"),
    }
}

/// What follows the names: of those that begin with the words so far, the next word.
const BASH: &str = r#"'
_penstock_ctl() {
    [ "${COMP_WORDS[1]}" = ctl ] || return
    local before="${COMP_WORDS[*]:2:COMP_CWORD-2}" current="${COMP_WORDS[COMP_CWORD]}" name
    before="${before:+$before }"
    COMPREPLY=()
    while IFS= read -r name; do
        [ "${name#"$before$current"}" != "$name" ] || continue
        name="${name#"$before"}"
        name="${name%% *}"
        case " ${COMPREPLY[*]} " in *" $name "*) ;; *) COMPREPLY+=("$name") ;; esac
    done <<EOF
$_penstock_ctl_commands
EOF
}
"#;

const FISH: &str = r#"
function __penstock_ctl
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = ctl; or return
    set -l before (string join ' ' $words[3..-1])
    test -n "$before"; and set before "$before "
    string split \n -- $__penstock_ctl_commands | string match -- "$before*" | string sub -s (math 1 + (string length -- "$before")) | string replace -r ' .*' '' | sort -u
end
complete -c penstock -n 'test (count (commandline -opc)) -ge 2' -f -a '(__penstock_ctl)'
"#;
