//! The configurations of `examples/` as scenarios: their addresses become free ones, their servers origins, and the commands
//! in their `# Try:` lines steps that are compared.

use std::path::Path;

use crate::Failure;
use crate::scenario::Scenario;

const CERTIFICATES: &str = "\"${CERTIFICATES-/etc/penstock}\"";

/// Every example, by the name `examples/FILE`.
pub fn load_all(folder: &Path) -> Result<Vec<Scenario>, Failure> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut scenarios = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|e| e == "cfg") {
            let name = format!("examples/{}", path.file_stem().unwrap_or_default().to_string_lossy());
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            // HAProxy has no services: crates/penstock/tests/services/real.rs tries these, beside a real scanner.
            if text.contains("\nservice ") {
                continue;
            }
            scenarios.push(Scenario::parse(&name, &as_scenario(&name, &text)?)?);
        }
    }
    Ok(scenarios)
}

/// An example's text as that of a scenario; an error if nothing in it tries it.
fn as_scenario(name: &str, example: &str) -> Result<String, Failure> {
    let about = example.lines().next().unwrap_or_default();
    let config: Vec<String> = example.lines().filter(|l| !l.starts_with('#')).map(with_free_addresses).collect();
    let mut text = format!("{about}\n[config whole]\n{}\n[options no-logs]\n", config.join("\n"));
    if example.contains("mode tcp") {
        // What passes TLS on needs a server that ends it.
        text.push_str("[origin port9001 tls=rsa]\n");
    }
    let head = text.len();
    for command in example.lines().filter_map(|l| l.strip_prefix("# Try:")) {
        let command = ports(command.trim(), ":", |port| format!(":{{{{port port{port}}}}}"));
        text.push_str(&format!("[shell]\n{}\n", certificates(&command, "\"$CERTIFICATES\"")));
    }
    if text.len() == head {
        return Err(format!("{name}: no line '# Try: COMMAND'"));
    }
    Ok(text)
}

/// A line of the configuration with a `bind` or an origin in the place of its address.
fn with_free_addresses(line: &str) -> String {
    let kind = if line.trim_start().starts_with("server ") { "origin" } else { "bind" };
    certificates(&ports(line, "127.0.0.1:", |port| format!("{{{{{kind} port{port}}}}}")), CERTIFICATES)
}

/// `text` with each port of four digits behind `before` replaced, and `before` with it, by what `place` makes of the port.
fn ports(text: &str, before: &str, place: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(before);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        out.push_str(&if digits == 4 { place(&part[..digits]) } else { format!("{before}{}", &part[..digits]) });
        out.push_str(&part[digits..]);
    }
    out
}

/// `text` with the suite's certificates for those of `folder`.
fn certificates(text: &str, folder: &str) -> String {
    let named = text.replace(&format!("{folder}/site.pem"), "{{cert rsa}}");
    named.replace(&format!("{folder}/clients-ca.pem"), "{{ca}}").replace(folder, "{{certs}}")
}
