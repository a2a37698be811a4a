//! Tables of expressions, ACLs, formats and rules (`tests/tables`), each evaluated by the real haproxy and by us.
//!
//! A table is a text of sections. `[request]` begins a scene: what the client sends, with `\xHH` for bytes that are not
//! text. What follows is evaluated on it, one line a case: `[expressions]` (as `set-var` takes them), `[acls]`,
//! `[formats]` (log formats), `[rules]` (groups of `http-request` rules, an empty line between them, after which the
//! request is written out). `[global]`, `[preamble]`, `[setup]` (rules before each case), `[file NAME]`, which cases
//! know as `{{dir}}/NAME`, and `[list NAME]`, for each line of which a case with `{{NAME}}` is made, hold for the whole
//! table. A case that both refuse agrees as well. One that begins with `!= ` must differ; the comment above it says why.

#[path = "../../../tests/reference.rs"]
mod reference;

mod support;

use penstock_rules::{ReplyBody, Verdict};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::{Stage, compile};

/// Cases that share a frontend, so that what it answers fits a buffer.
const CHUNK: usize = 50;

const SECTIONS: &[&str] =
    &["request", "file", "list", "global", "preamble", "setup", "expressions", "acls", "formats", "rules"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Expressions,
    Acls,
    Formats,
    Rules,
}

/// A request, and what is evaluated on it.
#[derive(Default)]
struct Scene {
    request: Vec<u8>,
    cases: Vec<(Kind, Vec<String>)>,
    /// Lines of cases in which we mean to differ.
    differ: BTreeSet<String>,
}

#[derive(Default)]
struct Table {
    global: Vec<String>,
    preamble: Vec<String>,
    setup: Vec<String>,
    files: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
    scenes: Vec<Scene>,
}

fn parse(text: &str) -> Table {
    let mut table = Table::default();
    let mut section = String::new();
    let mut head_done = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
            && SECTIONS.iter().any(|known| name.split(' ').next() == Some(known))
        {
            section = name.to_owned();
            if section == "request" {
                table.scenes.push(Scene::default());
                head_done = false;
            }
            if section == "rules" {
                table.scenes.last_mut().expect("a request comes first").cases.push((Kind::Rules, Vec::new()));
            }
            continue;
        }
        let kind = match section.as_str() {
            "request" => {
                let request = &mut table.scenes.last_mut().expect("it has begun").request;
                request.extend(unescape(line));
                if !head_done {
                    request.extend(b"\r\n");
                }
                head_done |= line.is_empty();
                continue;
            }
            name if name.starts_with("file ") => {
                *table.files.entry(name[5..].to_owned()).or_default() += &format!("{line}\n");
                continue;
            }
            name if name.starts_with("list ") && !line.is_empty() => {
                table.lists.entry(name[5..].to_owned()).or_default().push(line.to_owned());
                continue;
            }
            name if name.starts_with("list ") => continue,
            _ if line.starts_with("# ") || line == "#" => continue,
            "global" => {
                table.global.push(line.to_owned());
                continue;
            }
            "preamble" => {
                table.preamble.push(line.to_owned());
                continue;
            }
            "setup" => {
                table.setup.push(line.to_owned());
                continue;
            }
            "expressions" => Kind::Expressions,
            "acls" => Kind::Acls,
            "formats" => Kind::Formats,
            "rules" => Kind::Rules,
            "" if line.is_empty() => continue,
            other => panic!("no section [{other}]"),
        };
        let scene = table.scenes.last_mut().expect("a request comes first");
        let line = match line.strip_prefix("!= ") {
            Some(line) => {
                scene.differ.extend(each(line, &table.lists));
                line
            }
            None => line,
        };
        let all = each(line, &table.lists);
        let cases = &mut scene.cases;
        match (kind, line.is_empty()) {
            (Kind::Rules, true) => cases.push((kind, Vec::new())),
            (Kind::Rules, false) => cases.last_mut().expect("it has begun").1.push(line.to_owned()),
            (_, true) => {}
            (_, false) => cases.extend(all.into_iter().map(|line| (kind, vec![line]))),
        }
    }
    for scene in &mut table.scenes {
        scene.cases.retain(|(_, lines)| !lines.is_empty());
        if !scene.request.ends_with(b"\r\n\r\n") && !head_ends(&scene.request) {
            scene.request.extend(b"\r\n");
        }
    }
    table
}

/// A line for each line of every list it names.
fn each(line: &str, lists: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let named = lists.iter().find(|(name, _)| line.contains(&format!("{{{{{name}}}}}")));
    match named {
        None => vec![line.to_owned()],
        Some((name, items)) => {
            let with = |item: &String| each(&line.replacen(&format!("{{{{{name}}}}}"), item, 1), lists);
            items.iter().flat_map(with).collect()
        }
    }
}

fn head_ends(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
}

fn unescape(line: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("\\x") {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        out.push(u8::from_str_radix(&rest[at + 2..at + 4], 16).expect("two hexadecimal digits"));
        rest = &rest[at + 4..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// A frontend: the cases it evaluates on a scene's request.
struct Front<'t> {
    request: &'t [u8],
    differ: &'t BTreeSet<String>,
    cases: Vec<&'t (Kind, Vec<String>)>,
}

fn fronts(table: &Table) -> Vec<Front<'_>> {
    let mut fronts = Vec::new();
    for scene in &table.scenes {
        let front = |cases| Front { request: &scene.request, differ: &scene.differ, cases };
        let (groups, single): (Vec<_>, Vec<_>) = scene.cases.iter().partition(|(kind, _)| *kind == Kind::Rules);
        fronts.extend(single.chunks(CHUNK).map(|cases| front(cases.to_vec())));
        fronts.extend(groups.into_iter().map(|case| front(vec![case])));
    }
    fronts
}

/// The configuration, and which case the lines from here on are of.
struct Text {
    text: String,
    lines: BTreeMap<u32, (usize, usize)>,
    written: u32,
}

fn configuration(
    table: &Table,
    fronts: &[Front<'_>],
    first: usize,
    ports: &[u16],
    refused: &BTreeSet<(usize, usize)>,
) -> Text {
    let mut out = Text { text: String::new(), lines: BTreeMap::new(), written: 0 };
    let push = |line: &str, case: Option<(usize, usize)>, text: &mut Text| {
        if let Some(case) = case {
            text.lines.insert(text.written + 1, case);
        }
        text.written += line.matches('\n').count() as u32 + 1;
        text.text += line;
        text.text.push('\n');
    };
    push("global\n  tune.bufsize 131072\n  expose-experimental-directives", None, &mut out);
    table.global.iter().for_each(|line| push(line, None, &mut out));
    push("defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s", None, &mut out);
    table.preamble.iter().for_each(|line| push(line, None, &mut out));
    for (f, (front, port)) in (first..).zip(fronts.iter().zip(ports)) {
        push(&format!("frontend f{f}\n  bind 127.0.0.1:{port}\n  option http-buffer-request"), None, &mut out);
        table.setup.iter().for_each(|line| push(line, None, &mut out));
        let mut answer = String::new();
        for (c, (kind, lines)) in front.cases.iter().enumerate() {
            let case = Some((f, c));
            if refused.contains(&(f, c)) {
                if *kind != Kind::Rules {
                    answer += ";";
                }
                continue;
            }
            match kind {
                Kind::Expressions => {
                    push(&format!("  http-request set-var(txn.e{c}) {}", lines[0]), case, &mut out);
                    // As text, with a letter that tells an empty text from none; and as the bytes of its own type.
                    let _ = write!(answer, "%[var(txn.e{c}),concat(<),hex]|%[var(txn.e{c}),hex];");
                }
                Kind::Acls => {
                    push(&format!("  http-request set-var(txn.e{c}) str(yes) if {{ {} }}", lines[0]), case, &mut out);
                    let _ = write!(answer, "%[var(txn.e{c})];");
                }
                Kind::Formats => {
                    push(&format!("  http-request set-var-fmt(txn.e{c}) {}", lines[0]), case, &mut out);
                    let _ = write!(answer, "%[var(txn.e{c}),hex];");
                }
                Kind::Rules => {
                    lines.iter().for_each(|line| push(&format!("  http-request {line}"), case, &mut out));
                    answer += "%[method] %[url] %[req.ver]\\n%[req.hdrs]";
                }
            }
        }
        let line = format!("  http-request return status 200 content-type text/plain lf-string \"{answer}\"");
        push(&line, None, &mut out);
    }
    out
}

struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first line that haproxy refuses, if it says which, and what it says.
fn refusal(program: &Path, path: &Path) -> Option<(Option<u32>, String)> {
    let output = Command::new(program).arg("-c").arg("-f").arg(path).output().expect("haproxy runs");
    if output.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // An argument that means nothing is reported on a line of its own below the alert.
    let alert = said.lines().find(|line| !line.contains("[WARNING]") && line.contains("parsing ["));
    let Some(alert) = alert else { return Some((None, said)) };
    let line =
        alert.split("parsing [").nth(1).and_then(|rest| rest.split(']').next()?.rsplit(':').next()?.parse().ok());
    Some((line, alert.to_owned()))
}

/// What haproxy refuses of expressions and ACLs when they are ACLs of one section: it goes on then to the next.
fn refused_as_acls(
    table: &Table,
    fronts: &[Front<'_>],
    program: &Path,
    path: &Path,
) -> BTreeMap<(usize, usize), String> {
    let mut text = "defaults\n  mode http\n  timeout client 5s\n".to_owned();
    table.preamble.iter().for_each(|line| text += &format!("{line}\n"));
    text += "frontend f\n  bind 127.0.0.1:1\n";
    let mut lines = BTreeMap::new();
    let first = text.lines().count() as u32 + 1;
    for (f, front) in fronts.iter().enumerate() {
        for (c, (kind, case)) in front.cases.iter().enumerate() {
            let flag = match kind {
                Kind::Expressions => " -m found",
                Kind::Acls => "",
                Kind::Formats | Kind::Rules => continue,
            };
            lines.insert(first + lines.len() as u32, (f, c));
            text += &format!("  acl a {}{flag}\n", case[0]);
        }
    }
    std::fs::write(path, text).expect("the folder takes files");
    let output = Command::new(program).arg("-c").arg("-f").arg(path).output().expect("haproxy runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let alerts = said.lines().filter(|line| line.contains("[ALERT]"));
    let place = |alert: &str| alert.split(" parsing [").nth(1)?.split(']').next()?.rsplit(':').next()?.parse().ok();
    alerts.filter_map(|alert| Some((*lines.get(&place(alert)?)?, alert.to_owned()))).collect()
}

fn serve(program: &Path, path: &Path, port: u16) -> Haproxy {
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    let mut haproxy = Haproxy(command.spawn().expect("haproxy starts"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(haproxy.0.try_wait().expect("it is our child").is_none(), "haproxy ended");
        assert!(Instant::now() < deadline, "haproxy did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    haproxy
}

/// Status and body of the answer; 0 where the connection was closed without one.
fn ask(port: u16, request: &[u8]) -> (u16, Vec<u8>) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return (0, Vec::new()) };
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket takes a timeout");
    stream.write_all(request).expect("haproxy reads");
    let mut answer = Vec::new();
    let mut part = [0; 65536];
    loop {
        let n = stream.read(&mut part).unwrap_or(0);
        answer.extend_from_slice(&part[..n]);
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n");
        let Some(end) = end else {
            if n == 0 {
                return (0, answer);
            }
            continue;
        };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if n == 0 || len.is_some_and(|len| answer.len() - end - 4 >= len) {
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
            return (status, answer[end + 4..].to_vec());
        }
    }
}

/// Free ports; held until all are known, so that they are different.
fn free_ports(n: usize) -> Vec<u16> {
    let held: Vec<_> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
    held.iter().map(|socket| socket.local_addr().expect("it is bound").port()).collect()
}

fn bytes_of(hex: &str) -> String {
    let digits = hex.as_bytes();
    let bytes: Option<Vec<u8>> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(std::str::from_utf8(&digits[at * 2..at * 2 + 2]).ok()?, 16).ok())
        .collect();
    bytes.map_or_else(|| hex.to_owned(), |bytes| format!("{:?}", bytes.escape_ascii().to_string()))
}

/// What an answer says of one case, for people.
fn readable(kind: Kind, field: &str) -> String {
    match kind {
        Kind::Expressions => match field.split_once('|') {
            Some(("", _)) => "nothing".to_owned(),
            Some((text, own)) => format!("{} (as bytes: {own})", bytes_of(text.strip_suffix("3C").unwrap_or(text))),
            None => field.to_owned(),
        },
        Kind::Formats => bytes_of(field),
        Kind::Acls => if field.is_empty() { "no" } else { "yes" }.to_owned(),
        Kind::Rules => field.to_owned(),
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables")
}

/// Runs a table, and says where we differ.
fn compare(name: &str, program: &Path) -> Vec<String> {
    let dir = std::env::temp_dir().join(format!("rules-table-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory takes folders");
    let text = std::fs::read_to_string(directory().join(name)).expect("the table is there");
    let table = parse(&text.replace("{{dir}}", &dir.display().to_string()));
    for (file, content) in &table.files {
        std::fs::write(dir.join(file), unescape(content)).expect("the folder takes files");
    }
    let fronts = fronts(&table);
    let ports = free_ports(fronts.len());
    let path = dir.join("haproxy.cfg");

    let mut differences = BTreeMap::new();
    let mut theirs_refused = refused_as_acls(&table, &fronts, program, &path);
    // haproxy ends at the first rule that it refuses, so that a small configuration is asked again and again.
    for f in 0..fronts.len() {
        loop {
            let refused = theirs_refused.keys().copied().collect();
            let configuration = configuration(&table, &fronts[f..=f], f, &ports[f..=f], &refused);
            std::fs::write(&path, &configuration.text).expect("the folder takes files");
            let Some((line, why)) = refusal(program, &path) else { break };
            match line.and_then(|line| configuration.lines.get(&line)) {
                Some(case) => _ = theirs_refused.insert(*case, why),
                None => {
                    // It did not survive the reading: which case was it?
                    let alone = |c: &usize| {
                        let others = (0..fronts[f].cases.len()).filter(|other| other != c).map(|other| (f, other));
                        let text =
                            self::configuration(&table, &fronts[f..=f], f, &ports[f..=f], &others.collect()).text;
                        std::fs::write(&path, text).expect("the folder takes files");
                        refusal(program, &path).is_some()
                    };
                    let known: BTreeSet<_> = theirs_refused.keys().copied().collect();
                    let rest = (0..fronts[f].cases.len()).filter(|c| !known.contains(&(f, *c)));
                    let dead: Vec<_> = rest.filter(alone).map(|c| ((f, c), format!("it ends: {why}"))).collect();
                    assert!(!dead.is_empty(), "{name}: haproxy refuses {why}");
                    theirs_refused.extend(dead);
                }
            }
        }
    }
    let whole = configuration(&table, &fronts, 0, &ports, &BTreeSet::new());
    let ours_refused: BTreeMap<(usize, usize), String> = compile(&whole.text)
        .diagnostics
        .list
        .iter()
        .filter(|d| d.severity == penstock_config::Severity::Error)
        .map(|d| {
            let line = d.span.expect("an error has a place").line;
            let case = whole.lines.get(&line).unwrap_or_else(|| panic!("{name}:{line}: {}", d.message));
            (*case, d.message.clone())
        })
        .collect();
    for (f, front) in fronts.iter().enumerate() {
        for c in 0..front.cases.len() {
            let case = (f, c);
            match (theirs_refused.get(&case), ours_refused.get(&case)) {
                (Some(why), None) => differences.insert(case, format!("only haproxy refuses: {why}")),
                (None, Some(why)) => differences.insert(case, format!("only we refuse: {why}")),
                _ => None,
            };
        }
    }

    let refused: BTreeSet<_> = theirs_refused.keys().chain(ours_refused.keys()).copied().collect();
    let configuration = configuration(&table, &fronts, 0, &ports, &refused);
    std::fs::write(&path, &configuration.text).expect("the folder takes files");
    let compiled = compile(&configuration.text).fine();
    let haproxy = serve(program, &path, ports[0]);
    for (f, front) in fronts.iter().enumerate() {
        let theirs = ask(ports[f], front.request);
        let mut stage = Stage::request_of(front.request);
        stage.frontend.name = format!("f{f}");
        stage.conn.dst = Some(std::net::SocketAddr::from(([127, 0, 0, 1], ports[f])));
        let rules = &compiled.rules[compiled.proxy(&format!("f{f}"))];
        let ours = match stage.with(|ctx| rules.http_request.run(ctx, 0)) {
            Verdict::Respond(_, reply) => match reply.body {
                ReplyBody::Bytes(body) => (reply.status, body.to_vec()),
                _ => (reply.status, Vec::new()),
            },
            // Without a backend the answer is 503.
            Verdict::Accept | Verdict::Continue => (503, Vec::new()),
            other => panic!("{name}: {other:?} for {:?}", front.cases),
        };
        if theirs.0 != ours.0 {
            differences.insert((f, 0), format!("haproxy answers {}, we {}", theirs.0, ours.0));
        }
        if theirs.0 != 200 || ours.0 != 200 {
            continue;
        }
        let (theirs, ours) = (theirs.1.escape_ascii().to_string(), ours.1.escape_ascii().to_string());
        if front.cases[0].0 == Kind::Rules {
            if theirs != ours {
                differences.insert((f, 0), format!("haproxy {theirs}\n    ours    {ours}"));
            }
            continue;
        }
        let fields = theirs.split(';').zip(ours.split(';'));
        for (c, ((kind, _), (theirs, ours))) in front.cases.iter().zip(fields).enumerate() {
            if theirs != ours {
                let (theirs, ours) = (readable(*kind, theirs), readable(*kind, ours));
                differences.insert((f, c), format!("haproxy {theirs}\n    ours    {ours}"));
            }
        }
    }
    drop(haproxy);
    let _ = std::fs::remove_dir_all(dir);
    unexplained(&fronts, &differences)
}

/// Differences that no table means, and those that it means and that are none any more.
fn unexplained(fronts: &[Front<'_>], differences: &BTreeMap<(usize, usize), String>) -> Vec<String> {
    let mut out = Vec::new();
    for (f, front) in fronts.iter().enumerate() {
        for (c, (kind, lines)) in front.cases.iter().enumerate() {
            let meant = lines.iter().any(|line| front.differ.contains(line));
            let lines = lines.join(" / ");
            match differences.get(&(f, c)) {
                Some(difference) if !meant => out.push(format!("{kind:?} {lines}\n    {difference}")),
                None if meant => out.push(format!("{kind:?} {lines}\n    differs no more")),
                _ => {}
            }
        }
    }
    out
}

fn tables() -> Vec<String> {
    let entries = std::fs::read_dir(directory()).expect("the tables are there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn tables_give_what_haproxy_gives() {
    let Some(program) = reference::haproxy_30() else { return };
    let wanted = std::env::var("TABLES").unwrap_or_default();
    let mut failed = String::new();
    for name in tables().iter().filter(|name| name.contains(&wanted)) {
        let differences = compare(name, &program);
        if !differences.is_empty() {
            let _ = write!(failed, "\n{name}: {} differ\n{}\n", differences.len(), differences.join("\n"));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// Converters that look at servers, of which there are none without sockets: `tests/scenarios/acl` has them.
const OF_SERVERS: &[&str] = &["nbsrv", "srv_queue"];

/// Converters that HAProxy 2.6, which these tables are compared with, does not know: scenarios compare them with 3.0.
const OF_NEWER: &[&str] = &[
    "aes_gcm_enc",
    "map_beg_key",
    "map_dir_key",
    "map_dom_key",
    "map_end_key",
    "map_int_key",
    "map_ip_key",
    "map_reg_key",
    "map_str_key",
    "map_sub_key",
    "ms_ltime",
    "ms_utime",
    "param",
    "rfc7239_field",
    "rfc7239_is_valid",
    "rfc7239_n2nn",
    "rfc7239_n2np",
    "table_glitch_cnt",
    "table_glitch_rate",
    "us_ltime",
    "us_utime",
    "when",
    "x509_v_err_str",
];

#[test]
fn every_converter_criterion_and_method_has_a_case() {
    let texts = tables().into_iter().map(|name| std::fs::read_to_string(directory().join(name)).expect("it is there"));
    let cases: Vec<String> =
        texts.flat_map(|text| parse(&text).scenes).flat_map(|scene| scene.cases).flat_map(|(_, lines)| lines).collect();
    let words: BTreeSet<&str> = cases
        .iter()
        .flat_map(|case| case.split(|c: char| !(c.is_ascii_alphanumeric() || "._-+".contains(c))))
        .collect();
    let works = |spec: &&penstock_rules::conv::ConvSpec| matches!(spec.support, penstock_rules::Support::Yes(_));
    let converters = penstock_rules::conv::sections().iter().flat_map(|(_, table)| table.iter()).filter(works);
    let methods = penstock_rules::patterns::Method::NAMES.iter().map(|(name, _)| (*name).to_owned());
    let missing: Vec<String> = converters
        .map(|spec| spec.name.to_owned())
        .chain(penstock_rules::criteria().filter(|name| !name.starts_with("scook") && !name.starts_with("shdr")))
        .chain(methods)
        .filter(|name| {
            !words.contains(name.as_str()) && !OF_SERVERS.contains(&name.as_str()) && !OF_NEWER.contains(&name.as_str())
        })
        .collect();
    assert!(missing.is_empty(), "no table has a case of {missing:?}");
}
