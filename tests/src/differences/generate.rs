//! Makes cases.

use penstock_rules::Kind;

use super::case::{Block, Case, Section};
use super::dice::Dice;
use super::{lines, speech, traffic};

/// How many cases are checked together.
pub const TOGETHER: usize = 40;

/// The cases of a seed's batch of this number.
pub fn batch(seed: u64, number: u64) -> Vec<Case> {
    let mut dice = Dice::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut aside = Dice::new(seed.rotate_left(17) ^ number);
    let one = |_| {
        if dice.chance(8) {
            return tcp(&mut dice);
        }
        let case = http(&mut dice);
        if aside.chance(6) { compressed(case, &mut aside) } else { case }
    };
    (0..TOGETHER).map(one).collect()
}

/// The same with compression, where bodies can be compared once they are decoded: each encoder makes other bytes of one.
/// Nothing that counts bytes is compared, nor a body that is cut: how much of it can be decoded is the encoder's matter.
fn compressed(mut case: Case, dice: &mut Dice) -> Case {
    let counted = case.lines.iter().any(|(_, l)| l.contains("bytes"));
    let cut = case.blocks.iter().any(|b| b.head.contains("then=") || b.lines.iter().any(|l| l == "too short"));
    if counted || cut {
        return case;
    }
    let section = if dice.chance(50) { Section::Front } else { Section::Back };
    let mut add = |section, line: &str| case.lines.push((section, line.to_owned()));
    add(
        section,
        dice.pick(&["compression algo gzip", "compression algo deflate gzip", "compression algo raw-deflate"]),
    );
    if dice.chance(40) {
        add(section, dice.pick(&["compression type text/plain", "compression type text/html text/"]));
    }
    if dice.chance(30) {
        add(section, "compression offload");
    }
    add(Section::Front, "no log");
    case.blocks.retain(|b| {
        !b.is_step()
            || b.head.starts_with("request") && !b.lines[0].contains("/cut/") && !b.lines[0].contains("/reset/")
    });
    for block in case.blocks.iter_mut().filter(|b| b.is_step()) {
        block.head.push_str(" decode");
        if dice.chance(80) {
            let wanted = dice.pick(&["gzip", "deflate", "gzip;q=0.5, deflate", "*", "identity, gzip;q=0", "br, gzip"]);
            block.lines.insert(1, format!("Accept-Encoding: {wanted}"));
        }
    }
    case
}

/// What a stick table keeps.
const STORED: &str = "gpc0,gpc1,gpt0,http_req_cnt,http_req_rate(1m),conn_cnt,http_err_cnt,http_fail_cnt,bytes_out_cnt,bytes_in_cnt,sess_cnt";

fn http(dice: &mut Dice) -> Case {
    let mut case = Case::default();
    let mut add = |section, text: String| case.lines.push((section, text));
    if dice.chance(8) {
        for _ in 0..=dice.below(2) {
            if let Some(line) = lines::keyword(Section::Defaults, dice) {
                add(Section::Defaults, line);
            }
        }
        if dice.chance(50) {
            add(Section::Defaults, lines::rule(http_kind(dice), dice));
        }
    }
    add(Section::Front, "bind {{bind b§}}".to_owned());
    if dice.chance(25) {
        add(Section::Front, format!("log-format {}", speech::word(&speech::log_format(dice))));
    }
    section(Section::Front, dice, &mut add);
    if dice.chance(92) {
        add(Section::Front, "default_backend k§".to_owned());
    }
    section(Section::Back, dice, &mut add);
    let address = if dice.chance(4) { "{{closed}}" } else { "{{origin o§}}" };
    add(Section::Back, format!("server s1 {address}{}", lines::server_words(dice)));
    if dice.chance(35) {
        add(Section::Back, format!("server s2 {{{{origin o§}}}}{}", lines::server_words(dice)));
    }
    name_acls(&mut case, dice);
    let has_table = case.lines.iter().any(|(s, l)| *s == Section::Back && l.starts_with("stick-table"));
    if !has_table && (dice.chance(5) || case.lines.iter().any(|(_, l)| speech::needs_table(l))) {
        let kind = dice.pick(&["ip", "ip", "string len 20", "integer"]);
        case.lines.push((Section::Back, format!("stick-table type {kind} size 100 expire 1m store {STORED}")));
    }
    if dice.chance(60) {
        case.blocks.extend(traffic::answers(dice));
    }
    let told = case.blocks.clone();
    case.blocks.extend((0..=dice.below(3)).map(|_| traffic::step(&told, dice)));
    // What comes first, the end of a half-closed client or the server's answer, would decide.
    if case.lines.iter().any(|(_, l)| l == "option abortonclose") {
        case.blocks.iter_mut().for_each(|b| b.lines.retain(|l| l != "shutdown"));
    }
    case
}

/// Rules and other lines of a section.
fn section(section: Section, dice: &mut Dice, add: &mut dyn FnMut(Section, String)) {
    for _ in 0..dice.below(3) {
        if let Some(line) = lines::keyword(section, dice) {
            add(section, line);
        }
    }
    for _ in 0..dice.below(4) {
        let kind = match dice.below(20) {
            0 if section == Section::Front => Kind::TcpConnection,
            1 if section == Section::Front => Kind::TcpSession,
            2 => Kind::TcpContent,
            3 if section == Section::Back => Kind::TcpResponse,
            _ => http_kind(dice),
        };
        add(section, lines::rule(kind, dice));
    }
}

/// Defines the ACLs that a section's conditions name.
fn name_acls(case: &mut Case, dice: &mut Dice) {
    for section in [Section::Defaults, Section::Front, Section::Back] {
        for name in ["a1", "a2"] {
            let named = |l: &str| l.split([' ', '!']).any(|w| w == name);
            let mut own = case.lines.iter().filter(|(s, _)| *s == section);
            if own.any(|(_, l)| named(l)) {
                let kind = if dice.chance(75) { Kind::HttpRequest } else { Kind::HttpResponse };
                let line = format!("acl {name} {}", speech::test(speech::Moment::Rule(kind), dice));
                let first = case.lines.iter().position(|(s, l)| *s == section && !l.starts_with("bind "));
                case.lines.insert(first.unwrap_or(0), (section, line));
            }
        }
    }
}

fn http_kind(dice: &mut Dice) -> Kind {
    match dice.below(10) {
        0..=5 => Kind::HttpRequest,
        6..=8 => Kind::HttpResponse,
        _ => Kind::HttpAfterResponse,
    }
}

fn tcp(dice: &mut Dice) -> Case {
    let mut case = Case::default();
    let mut add = |section, text: String| case.lines.push((section, text));
    for section in [Section::Front, Section::Back] {
        if section == Section::Front {
            add(section, "bind {{bind b§}}".to_owned());
            add(section, "option tcplog".to_owned());
        }
        add(section, "mode tcp".to_owned());
        if dice.chance(50) {
            add(section, "tcp-request inspect-delay 100ms".to_owned());
        }
        for _ in 0..=dice.below(2) {
            let kind = match dice.below(5) {
                0 if section == Section::Front => Kind::TcpConnection,
                1 if section == Section::Front => Kind::TcpSession,
                2 if section == Section::Back => Kind::TcpResponse,
                _ => Kind::TcpContent,
            };
            add(section, lines::rule(kind, dice));
        }
        match section {
            Section::Front => add(section, "default_backend k§".to_owned()),
            // A check would be one more connection that the script of a raw origin shows.
            _ => add(
                section,
                format!("server s1 {{{{origin o§}}}}{}", lines::server_words(dice).replace(" check ", " ")),
            ),
        }
    }
    name_acls(&mut case, dice);
    if case.lines.iter().any(|(_, l)| speech::needs_table(l)) {
        case.lines.push((Section::Back, format!("stick-table type ip size 100 expire 1m store {STORED}")));
    }
    if dice.chance(40) {
        let mut script = vec![];
        for _ in 0..=dice.below(3) {
            script.push(dice.pick(&["recv 3", "send hello", "sleep 20", "send \\x00\\x01bye", "recv end"]).to_owned());
        }
        // One that closes before it has read everything would reset the connection.
        let last = dice.pick(&["reset", "shutdown|recv end", "recv end"]);
        script.extend(last.split('|').map(str::to_owned));
        case.blocks.push(Block::new("origin o§ raw", script));
    }
    let mut script = Vec::new();
    for _ in 0..=dice.below(3) {
        script.push(
            dice.pick(&[
                "send abc",
                "send GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n",
                "sleep 20",
                "send \\x16\\x03\\x01",
                "send GET / HTTP/1.0\\r\\n\\r\\n",
            ])
            .to_owned(),
        );
    }
    script.push(dice.pick(&["shutdown", "sleep 1", "sleep 1"]).to_owned());
    script.push("recv end".to_owned());
    case.blocks.push(Block::new("tcp b§", script));
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_cases() {
        assert_eq!(batch(5, 3), batch(5, 3));
        assert_ne!(batch(5, 3), batch(5, 4));
    }
}
