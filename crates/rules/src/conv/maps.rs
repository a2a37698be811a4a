//! `map`, `map_<method>` and `map_<method>_<type>`: look the sample up in a map file.

use super::spec::{ConvFn, ConvSpec};
use crate::{
    keyword::{Arg, ArgKind, ArgSpec, Args, Support, arg, opt},
    patterns::{Method, typed},
    value::{
        Type::{self, Addr, Int, Str},
        Value,
    },
};
use std::sync::LazyLock;

const ARGS: &[ArgSpec] = &[arg("file", ArgKind::Map), opt("default", ArgKind::Str)];

/// The matching method and the type of values that a converter's name stands for.
pub(crate) fn map_kind(name: &str) -> Option<(Method, Type)> {
    let rest = name.strip_prefix("map")?;
    let mut parts = rest.split('_').skip(1);
    let (method, output) = match parts.next() {
        None => (Method::Str, Str),
        // `map_int` compares numbers; `map_str_int` returns them.
        Some("regm") => (Method::Reg, Str),
        Some(method) => (
            Method::parse(method)?,
            match parts.next() {
                Some("int") => Int,
                Some("ip") => Addr,
                // `key` gives the entry's own key.
                _ => Str,
            },
        ),
    };
    Some((method, output))
}

pub(super) fn table() -> &'static [ConvSpec] {
    static TABLE: LazyLock<Vec<ConvSpec>> = LazyLock::new(|| {
        let methods = ["str", "beg", "dir", "dom", "end", "int", "ip", "reg", "sub"];
        let outs = ["", "_int", "_ip", "_key"];
        let names = methods.iter().flat_map(|method| outs.map(|out| format!("map_{method}{out}")));
        ["map".to_owned(), "map_regm".to_owned()]
            .into_iter()
            .chain(names)
            .map(|name| {
                let (method, output) = map_kind(&name).expect("made of methods that exist");
                let groups = name == "map_regm";
                let key = name.ends_with("_key");
                let input = match method {
                    Method::Int => Int,
                    Method::Ip => Addr,
                    _ => Str,
                };
                let doc = format!(
                    "{} a map file holds for the sample, compared by `{}`{}.",
                    if key { "The key of what" } else { "What" },
                    method.name(),
                    if groups { "; `\\1` to `\\9` are groups" } else { "" }
                );
                let run = if key {
                    ConvFn::Plain(|_, value, args| {
                        let Some(Arg::Map(map)) = args.first() else { return None };
                        map.key_of(&value)
                    })
                } else if groups {
                    ConvFn::Plain(|_, value, args| {
                        let Some(Arg::Map(map)) = args.first() else { return None };
                        map.rewrite(value.bytes()?).map(Value::string).or_else(|| args.bytes(1).map(Value::str))
                    })
                } else {
                    ConvFn::Plain(|_, value, args| {
                        let Some(Arg::Map(map)) = args.first() else { return None };
                        map.lookup(&value).or_else(|| {
                            let default = args.bytes(1)?;
                            match map.output() {
                                Str => Some(Value::str(default)),
                                other => typed(default, other).ok(),
                            }
                        })
                    })
                };
                let args = if key { &ARGS[..1] } else { ARGS };
                ConvSpec { name: name.leak(), args, input, output, doc: doc.leak(), support: Support::Yes(run) }
            })
            .collect()
    });
    &TABLE
}
