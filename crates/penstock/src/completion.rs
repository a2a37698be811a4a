//! Shell completion of the command line, from the tables of options and commands.
//!
//! Each script is one function. It finds the command that is being typed (`bench load` is two words), gets that
//! command's options, the options that take a value, and the words that may follow, and offers those that continue what
//! was typed.

use crate::{
    arguments::{Command, Opt},
    flags,
};
use std::fmt::Write;

/// The supported shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Every shell by name.
pub const SHELLS: &[(&str, Shell)] = &[("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

impl Shell {
    /// Finds a shell by name.
    pub fn parse(word: &str) -> Option<Shell> {
        SHELLS.iter().find(|(name, _)| *name == word).map(|(_, shell)| *shell)
    }
}

/// The script for a shell. It also completes `haproxy`, which is a link to penstock where the package penstock-haproxy is installed.
pub fn script(commands: &[Command], shell: Shell) -> String {
    let mut arms = String::new();
    let mut groups = Vec::new();
    let first = commands.iter().map(|command| (command.name, command.help)).collect();
    arm(&mut arms, shell, Some(""), &flags::listed(true), &[], first);
    for command in commands {
        let below = command.below.iter().map(|below| (below.name, below.help)).collect();
        arm(&mut arms, shell, Some(command.name), &(command.options)(), &(command.words)(), below);
        for below in command.below {
            let name = format!("{} {}", command.name, below.name);
            arm(&mut arms, shell, Some(&name), &(below.options)(), &(below.words)(), Vec::new());
        }
        if !command.below.is_empty() {
            groups.push(command.name);
        }
    }
    // Anything that does not start with a subcommand starts the service.
    let options: Vec<Opt> = flags::listed(true).into_iter().chain(flags::listed(false)).collect();
    arm(&mut arms, shell, None, &options, &[], Vec::new());
    let template = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    let separator = if shell == Shell::Fish { " " } else { "|" };
    template.replace("@GROUPS@", &groups.join(separator)).replace("@ARMS@", arms.trim_end())
}

/// The words that may follow a command, as an arm of the script's `case`; `None` stands for all other commands.
fn arm(
    arms: &mut String,
    shell: Shell,
    name: Option<&str>,
    options: &[Opt],
    words: &[&str],
    commands: Vec<(&str, &str)>,
) {
    // A hidden option has no help.
    let options: Vec<&Opt> = options.iter().filter(|option| !option.help.is_empty()).collect();
    let with_value: Vec<&str> = options.iter().filter(|o| o.takes.is_some()).map(|o| o.name.as_str()).collect();
    let choices: Vec<(&str, String)> = options.iter().filter_map(|o| Some((o.name.as_str(), choices(o)?))).collect();
    // Writing to a String does not fail.
    let _ = match shell {
        Shell::Bash => {
            let names = options.iter().map(|o| o.name.as_str()).chain(commands.iter().map(|(name, _)| *name));
            let names: Vec<&str> = names.collect();
            let _ = match name {
                Some(name) => writeln!(arms, "    '{name}')"),
                None => writeln!(arms, "    *)"),
            };
            let _ = writeln!(arms, "        offered='{}'", names.join(" "));
            let _ = writeln!(arms, "        values=' {} '", with_value.join(" "));
            let _ = writeln!(arms, "        names='{}'", words.join("\n"));
            for (option, choices) in choices {
                let _ =
                    writeln!(arms, "        [ \"$previous\" != {option} ] || offered='{choices}' values='' names=''");
            }
            writeln!(arms, "        ;;")
        }
        Shell::Zsh => {
            let described = |(name, help): (&str, &str)| format!("{}:{}", name.replace(':', "\\:"), help);
            let list = |list: Vec<String>| list.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            let _ = match name {
                Some(name) => writeln!(arms, "    ('{name}')"),
                None => writeln!(arms, "    (*)"),
            };
            let listed = options.iter().map(|o| described((&o.name, &o.help))).collect();
            let _ = writeln!(arms, "        offered=({})", list(listed));
            let _ = writeln!(arms, "        commands=({})", list(commands.into_iter().map(described).collect()));
            let _ = writeln!(arms, "        values=({})", with_value.join(" "));
            let _ = writeln!(arms, "        names=({})", list(words.iter().map(|word| word.to_string()).collect()));
            for (option, choices) in choices {
                let _ = writeln!(arms, "        [[ $previous != {option} ]] || {{ compadd -- {choices}; return }}");
            }
            writeln!(arms, "        ;;")
        }
        Shell::Fish => {
            let escape = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
            let described = |(name, help): (&str, &str)| format!("{}\\t{}", escape(name), escape(help));
            let _ = match name {
                Some(name) => writeln!(arms, "        case '{name}'"),
                None => writeln!(arms, "        case '*'"),
            };
            let offered = options.iter().map(|o| (o.name.as_str(), o.help.as_str())).chain(commands);
            let _ = writeln!(arms, "            set offered {}", offered.map(described).collect::<Vec<_>>().join(" "));
            let _ = writeln!(arms, "            set values {}", with_value.join(" "));
            let words = words.iter().map(|word| escape(word)).collect::<Vec<_>>().join(" ");
            let _ = writeln!(arms, "            set names {words}");
            for (option, choices) in choices {
                let each = choices.replace(' ', "\\n");
                let _ = writeln!(arms, "            test \"$previous\" = {option}; and printf '{each}\\n'; and return");
            }
            Ok(())
        }
    };
}

/// The values of an option whose placeholder lists all of them (`1.2|1.3`).
fn choices(option: &Opt) -> Option<String> {
    let values = option.takes?;
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.';
    let all = values.contains('|') && values != "file|dir" && values.split('|').all(|value| value.chars().all(is_word));
    all.then(|| values.replace('|', " "))
}

/// Quotes text as one word of bash or zsh.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

const BASH: &str = r#"# Completion of penstock for bash; made by `penstock completion bash`.
_penstock() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local at='' before='' offered='' values='' names='' i=2 name
    COMPREPLY=()
    [ "$COMP_CWORD" -lt 2 ] || at="${COMP_WORDS[1]}"
    case "$at" in
    @GROUPS@) [ "$COMP_CWORD" -lt 3 ] || { at="$at ${COMP_WORDS[2]}"; i=3; } ;;
    esac
    case "$at" in
@ARMS@
    esac
    # A value: readline completes file names.
    case "$values" in *" $previous "*) return ;; esac
    while [ "$i" -lt "$COMP_CWORD" ]; do
        case "${COMP_WORDS[i]}" in
        -*) case "$values" in *" ${COMP_WORDS[i]} "*) i=$((i + 1)) ;; esac ;;
        *) before="$before${COMP_WORDS[i]} " ;;
        esac
        i=$((i + 1))
    done
    before="${before#watch }"
    # Behind the first word of a command to ctl, all belongs to that.
    if [ "$at" != ctl ] || [ -z "$before" ]; then
        for name in $offered; do
            case "$name" in "$current"*) COMPREPLY+=("$name") ;; esac
        done
    fi
    [ -n "$names" ] || return 0
    while IFS= read -r name; do
        case "$name" in "$before$current"*) ;; *) continue ;; esac
        name="${name#"$before"}"
        name="${name%% *}"
        case " ${COMPREPLY[*]} " in *" $name "*) ;; *) COMPREPLY+=("$name") ;; esac
    done <<EOF
$names
EOF
}
complete -o default -F _penstock penstock haproxy
"#;

const ZSH: &str = r#"#compdef penstock haproxy
# Completion of penstock for zsh; made by `penstock completion zsh`.
_penstock() {
    local at='' before='' name previous=${words[CURRENT-1]}
    local -i i=3
    local -a offered commands values names next
    (( CURRENT > 2 )) && at=${words[2]}
    case $at in
    (@GROUPS@) (( CURRENT > 3 )) && { at="$at ${words[3]}"; i=4 } ;;
    esac
    case $at in
@ARMS@
    esac
    (( ${values[(Ie)$previous]} )) && { _files; return }
    while (( i < CURRENT )); do
        if [[ ${words[i]} == -* ]]; then
            (( ${values[(Ie)${words[i]}]} )) && (( i++ ))
        else
            before+="${words[i]} "
        fi
        (( i++ ))
    done
    before=${before#watch }
    for name in $names; do
        [[ $name == ${(b)before}?* ]] && next+=(${${name#${before}}%% *})
    done
    (( $#next )) && compadd -- ${(u)next}
    # Behind the first word of a command to ctl, all belongs to that.
    if [[ $at != ctl || -z $before ]]; then
        (( $#commands )) && _describe command commands
        (( $#offered )) && _describe -o option offered
    fi
    (( $#next + $#commands )) || _files
}
if [[ ${funcstack[1]} == _penstock ]]; then
    _penstock "$@"
else
    compdef _penstock penstock haproxy
fi
"#;

const FISH: &str = r#"# Completion of penstock for fish; made by `penstock completion fish`.
function __penstock
    set -l typed (commandline -opc)
    set -l previous $typed[-1]
    set -l i 3
    set -l at ''
    set -l before ''
    set -l offered
    set -l values
    set -l names
    test (count $typed) -ge 2; and set at $typed[2]
    if contains -- "$at" @GROUPS@; and test (count $typed) -ge 3
        set at "$at $typed[3]"
        set i 4
    end
    switch "$at"
@ARMS@
    end
    contains -- "$previous" $values; and return
    while test $i -le (count $typed)
        if string match -q -- '-*' $typed[$i]
            contains -- $typed[$i] $values; and set i (math $i + 1)
        else
            set before "$before$typed[$i] "
        end
        set i (math $i + 1)
    end
    set before (string replace -r '^watch ' '' -- "$before")
    # Behind the first word of a command to ctl, all belongs to that.
    if test "$at" != ctl; or test -z "$before"
        printf '%s\n' $offered
    end
    for name in $names
        if test (string sub -l (string length -- "$before") -- "$name") = "$before"
            string sub -s (math 1 + (string length -- "$before")) -- "$name" | string replace -r ' .*' ''
        end
    end | sort -u
end
for name in penstock haproxy
    complete -c $name -n 'test (count (commandline -opc)) -eq 1' -f
    complete -c $name -n 'contains -- (commandline -opc)[2] ctl bench completion man' -f
    complete -c $name -a '(__penstock)'
end
"#;
