//! Log-format strings, compiled and rendered: log lines, and every value in a rule that may contain `%[...]`.

use super::{
    alias::{ALIASES, AliasSpec},
    cbor,
    flags::{Encoding, Flags},
    json::{self, FieldType},
};
use crate::{
    context::{Context, Render},
    expr::{Expr, SHORT},
    hint,
    link::{Linker, Scope},
    problem::Problem,
    value::{Value, hex_of},
};

/// A compiled log-format string.
#[derive(Clone, Debug, Default)]
pub struct LogFormat {
    nodes: Vec<Node>,
    encode_http: bool,
    /// How the line is encoded if it is an object, which has the named fields alone.
    object: Option<Encoding>,
    /// Whether an object in CBOR is written as it is, and not in hexadecimal.
    binary: bool,
}

#[derive(Clone, Debug)]
struct Node {
    /// Whether a space precedes it, unless the output ends in one already.
    spaced: bool,
    /// The text that precedes it, usually empty or one character.
    text: Box<[u8]>,
    part: Part,
    field: Field,
}

/// What `%(NAME:TYPE)` says of a part.
#[derive(Clone, Debug, Default)]
struct Field {
    name: Box<str>,
    kind: Option<FieldType>,
}

#[derive(Clone, Debug)]
enum Part {
    /// Nothing besides the space and the text before it.
    Nothing,
    Alias(&'static AliasSpec, Flags),
    Sample(Box<Expr>, Flags),
}

/// The use of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A log line: spaces are merged, and a missing value is written as `-`.
    Log,
    /// A unique-id: spaces are merged, and what is not valid in an HTTP field is encoded.
    UniqueId,
    /// Part of an HTTP message: what is not valid there is encoded.
    Http,
    /// Anything else.
    Text,
}

/// Byte for byte what `option tcplog` writes.
pub const TCP: &str = "%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq";
/// `option httplog`.
pub const HTTP: &str =
    "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
/// `option httpslog`.
pub const HTTPS: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r \
     %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] %[ssl_fc_sni]/%sslv/%sslc";
/// `option httplog clf`.
pub const CLF: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl";
/// No option at all, in a `mode tcp` frontend.
pub const DEFAULT_TCP: &str = "Connect from %ci:%cp to %fi:%fp (%f/TCP)";
/// No option at all, in a `mode http` frontend.
pub const DEFAULT_HTTP: &str = "Connect from %ci:%cp to %fi:%fp (%f/HTTP)";

impl LogFormat {
    /// A format that gives the text as it is, whatever it contains.
    pub fn literal(text: &[u8]) -> Self {
        let node = Node { spaced: false, text: text.into(), part: Part::Nothing, field: Field::default() };
        LogFormat { nodes: vec![node], ..LogFormat::default() }
    }

    /// Appends the rendered text to `out`.
    pub fn render(&self, ctx: &Context<'_>, out: &mut Vec<u8>) {
        match self.object {
            Some(Encoding::Json) => return self.render_object(ctx, out),
            Some(Encoding::Cbor) => return self.render_cbor(ctx, out),
            None => {}
        }
        // Spaces around something that writes nothing become one space; a line never starts with one.
        let mut spaced = true;
        for node in &self.nodes {
            if node.spaced && !spaced {
                out.push(b' ');
                spaced = true;
            }
            let before = out.len();
            match &*node.text {
                [] => {}
                [byte] => out.push(*byte),
                text => out.extend_from_slice(text),
            }
            match &node.part {
                Part::Nothing => {}
                part @ (Part::Alias(_, Flags { encoding: Some(encoding), .. })
                | Part::Sample(_, Flags { encoding: Some(encoding), .. })) => match encoding {
                    Encoding::Json => part.write_json(ctx, node.field.kind, out),
                    Encoding::Cbor => {
                        let mut bytes = Vec::new();
                        part.write_cbor(ctx, node.field.kind, &mut bytes);
                        out.extend(hex_of(&bytes));
                    }
                },
                Part::Alias(spec, flags) => {
                    (spec.write)(ctx, *flags, out);
                }
                Part::Sample(expr, flags) => self.sample(ctx, expr, *flags, out),
            }
            spaced &= out.len() == before;
        }
    }

    fn render_object(&self, ctx: &Context<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, node) in self.nodes.iter().filter(|node| !node.field.name.is_empty()).enumerate() {
            if at > 0 {
                out.extend_from_slice(b", ");
            }
            // Nothing in a name needs an escape.
            out.push(b'"');
            out.extend_from_slice(node.field.name.as_bytes());
            out.extend_from_slice(b"\": ");
            node.part.write_json(ctx, node.field.kind, out);
        }
        out.push(b'}');
    }

    fn render_cbor(&self, ctx: &Context<'_>, out: &mut Vec<u8>) {
        let mut bytes = vec![cbor::OBJECT_BEGIN];
        for node in self.nodes.iter().filter(|node| !node.field.name.is_empty()) {
            cbor::text(node.field.name.as_bytes(), &mut bytes);
            node.part.write_cbor(ctx, node.field.kind, &mut bytes);
        }
        bytes.push(cbor::END);
        if self.binary {
            out.extend_from_slice(&bytes);
        } else {
            out.extend(hex_of(&bytes));
        }
    }

    fn sample(&self, ctx: &Context<'_>, expr: &Expr, flags: Flags, out: &mut Vec<u8>) {
        let value = expr.eval(ctx).ok().and_then(|value| match value {
            // Text ends at a NUL.
            Value::Bin(_) => value.cast(crate::value::Type::Str),
            value => Some(value),
        });
        match value {
            // Numbers and addresses need no check for quotes or escapes.
            Some(value @ (Value::Int(_) | Value::Bool(_) | Value::Ipv4(_) | Value::Ipv6(_))) if !flags.quote => {
                value.write_text(out);
            }
            // Quotes are only for log lines.
            Some(value) if self.encode_http => match value.bytes() {
                Some(text) => encode_http(text, flags.escape, out),
                None => encode_http(&value.to_text(), false, out),
            },
            Some(value) => match value.bytes() {
                Some(text) => flags.text(Some(text), out),
                None => flags.text(Some(&value.to_text()), out),
            },
            None if self.encode_http => {}
            None => flags.text(None, out),
        }
    }

    /// The text, if it is constant.
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.nodes[..] {
            [] if self.object.is_none() => Some(b""),
            [Node { spaced: false, text, part: Part::Nothing, .. }] if self.object.is_none() => Some(text),
            _ => None,
        }
    }

    /// The rendered text, for rules. It is cut at `tune.bufsize`, as in HAProxy, which writes it to a buffer: so a variable whose new value
    /// contains its old one cannot grow for ever.
    pub fn to_bytes(&self, ctx: &Context<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        self.render(ctx, &mut out);
        if out.len() > SHORT {
            // HAProxy's text is followed by a NUL.
            out.truncate(ctx.world.head_bytes() - 1);
            out.shrink_to_fit();
        }
        out
    }
}

impl Part {
    fn write_cbor(&self, ctx: &Context<'_>, kind: Option<FieldType>, out: &mut Vec<u8>) {
        match self {
            Part::Nothing => {}
            Part::Alias(spec, flags) => cbor::alias(ctx, spec, *flags, kind, out),
            Part::Sample(expr, _) => cbor::sample(ctx, expr, kind, out),
        }
    }
    fn write_json(&self, ctx: &Context<'_>, kind: Option<FieldType>, out: &mut Vec<u8>) {
        match self {
            Part::Nothing => {}
            Part::Alias(spec, flags) => json::alias(ctx, spec, *flags, kind, out),
            Part::Sample(expr, _) => json::sample(ctx, expr, kind, out),
        }
    }
}

/// Writes bytes that are invalid in an HTTP field (control characters other than tab, and DEL) as `%` and two digits.
fn encode_http(text: &[u8], escape: bool, out: &mut Vec<u8>) {
    let is_special =
        |byte: &u8| *byte < 0x20 && *byte != b'\t' || *byte == 0x7f || escape && matches!(byte, b'"' | b'\\' | b']');
    let mut rest = text;
    while let Some(at) = rest.iter().position(is_special) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\' | b']') => out.extend_from_slice(&[b'\\', byte]),
            byte => {
                out.push(b'%');
                out.extend_from_slice(&hex_of(&[byte]));
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

impl Linker<'_> {
    /// Compiles a log-format string.
    ///
    /// # Errors
    ///
    /// What cannot be parsed, and where.
    pub fn log_format(&mut self, text: &str, purpose: Purpose, scope: Scope) -> Result<LogFormat, Problem> {
        let mut nodes = Nodes::default();
        let mut common = Flags { mandatory: purpose == Purpose::Log, ..Flags::default() };
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b' ' if matches!(purpose, Purpose::Log | Purpose::UniqueId) => {
                    nodes.space();
                    at += 1;
                }
                b'%' if bytes.get(at + 1) == Some(&b'%') => {
                    nodes.literal.push(b'%');
                    at += 2;
                }
                b'%' => {
                    let start = at;
                    at += 1;
                    let mut flags = common;
                    let mut field = Field::default();
                    if bytes.get(at) == Some(&b'(') {
                        (field, at) = field_at(text, at)?;
                    }
                    if bytes.get(at) == Some(&b'{') {
                        let Some(len) = text[at..].find('}') else {
                            return Err(Problem::new(at..text.len(), "'%{' needs a closing '}'"));
                        };
                        flags.change(&text[at + 1..at + len], at + 1, purpose, &mut self.of_no_effect)?;
                        at += len + 1;
                    }
                    if bytes.get(at) == Some(&b'[') {
                        let (expr, end) = self.expression_in(text, at + 1, scope)?;
                        if bytes.get(end) != Some(&b']') {
                            return Err(Problem::new(end..text.len(), "']' is expected after the expression"));
                        }
                        nodes.push(Part::Sample(Box::new(expr), flags), field);
                        at = end + 1;
                        continue;
                    }
                    let name = text[at..].bytes().take_while(u8::is_ascii_alphanumeric).count();
                    let name = &text[at..at + name];
                    if name == "o" {
                        common = flags;
                        at += 1;
                        continue;
                    }
                    let Some(spec) = ALIASES.iter().find(|spec| spec.name == name) else {
                        return Err(unknown(name, start..at + name.len()));
                    };
                    nodes.push(Part::Alias(spec, flags), field);
                    at += name.len();
                }
                _ => {
                    let len = text[at..].chars().next().map_or(1, char::len_utf8);
                    nodes.literal.extend_from_slice(&penstock_config::bytes_of(&text[at..at + len]));
                    at += len;
                }
            }
        }
        let encode_http = matches!(purpose, Purpose::Http | Purpose::UniqueId);
        Ok(LogFormat { nodes: nodes.finish(), encode_http, object: common.encoding, binary: common.binary })
    }
}

/// A format while it is being parsed.
#[derive(Default)]
struct Nodes {
    done: Vec<Node>,
    /// Text that may be continued.
    literal: Vec<u8>,
    /// Whether the next part is preceded by a space.
    spaced: bool,
}

impl Nodes {
    fn space(&mut self) {
        if !self.literal.is_empty() {
            self.push(Part::Nothing, Field::default());
        }
        self.spaced = true;
    }
    fn push(&mut self, part: Part, field: Field) {
        let text = std::mem::take(&mut self.literal).into();
        self.done.push(Node { spaced: std::mem::take(&mut self.spaced), text, part, field });
    }
    fn finish(mut self) -> Vec<Node> {
        if self.spaced || !self.literal.is_empty() {
            self.push(Part::Nothing, Field::default());
        }
        self.done
    }
}

/// The field's name, `(name)` or `(name:type)` at `open`, and where what follows it begins.
fn field_at(text: &str, open: usize) -> Result<(Field, usize), Problem> {
    const TYPES: &str = "a name may be followed by ':' and 'str', 'sint', 'bool' or 'raw'";
    let Some(len) = text[open..].find(')') else {
        return Err(Problem::new(open..text.len(), "'%(' needs a closing ')'"));
    };
    let inside = &text[open + 1..open + len];
    let (name, kind) = inside.split_once(':').map_or((inside, None), |(name, kind)| (name, Some(kind)));
    if !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_') {
        let message = format!("'{name}' is not a field's name: letters, digits, '-' and '_' make one");
        return Err(Problem::new(open + 1..open + len, message));
    }
    let kind = match kind {
        None => None,
        Some("str") => Some(FieldType::Text),
        Some("sint") => Some(FieldType::Int),
        Some("bool") => Some(FieldType::Bool),
        Some("raw") => Some(FieldType::Raw),
        Some(kind) => {
            let message = format!("'{kind}' is not a field's type");
            return Err(Problem::new(open + 1..open + len, message).hint(TYPES.to_owned()));
        }
    };
    Ok((Field { name: name.into(), kind }, open + len + 1))
}

fn unknown(name: &str, at: std::ops::Range<usize>) -> Problem {
    if name.is_empty() {
        return Problem::new(at, "'%' needs an alias or '[expression]' after it")
            .hint("write %% for a percent sign".to_owned());
    }
    let near = ALIASES
        .iter()
        .find(|spec| spec.name.eq_ignore_ascii_case(name))
        .map(|spec| format!("did you mean '%{}'?", spec.name));
    Problem::new(at, format!("unknown log-format alias '%{name}'"))
        .hint(near.or_else(|| hint::nearest(name, ALIASES.iter().map(|spec| spec.name))))
}

impl Flags {
    /// Parses flags such as `+Q,-E`. As in HAProxy, a flag is what follows its last sign, and an unknown one changes nothing.
    /// Those go to `of_no_effect`.
    fn change(
        &mut self,
        list: &str,
        at: usize,
        purpose: Purpose,
        of_no_effect: &mut Vec<Problem>,
    ) -> Result<(), Problem> {
        for flag in list.split(',').map(str::trim) {
            // A flag without a sign changes nothing.
            let Some(sign) = flag.rfind(['+', '-']) else { continue };
            let on = flag[sign..].starts_with('+');
            match &flag[sign + 1..] {
                "Q" => self.quote = on,
                "E" => self.escape = on,
                "X" => self.hexadecimal = on,
                "M" => self.mandatory = on,
                name @ ("json" | "cbor" | "bin") if purpose != Purpose::Log => {
                    let message = format!("only log lines are encoded as '{name}'");
                    return Err(Problem::new(at..at + list.len(), message)
                        .hint("use the converter 'json' for a value that stands in a text of JSON".to_owned()));
                }
                "bin" => self.binary = on,
                name @ ("json" | "cbor") => {
                    let encoding = if name == "json" { Encoding::Json } else { Encoding::Cbor };
                    // As in HAProxy, the first of both holds.
                    if on {
                        self.encoding.get_or_insert(encoding);
                    } else if self.encoding == Some(encoding) {
                        self.encoding = None;
                    }
                }
                "" => {}
                other => of_no_effect.push(
                    Problem::new(at..at + list.len(), format!("'{other}' is no flag of log formats and has no effect"))
                        .hint("the flags are Q (quote), E (escape) and X (hexadecimal)".to_owned()),
                ),
            }
        }
        Ok(())
    }
}

impl Render for LogFormat {
    fn render(&self, ctx: &Context<'_>, out: &mut Vec<u8>) {
        LogFormat::render(self, ctx, out);
    }
}
