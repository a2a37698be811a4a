//! A value in statistics, with the type that HAProxy's outputs give it.

use serde_json::Value as Json;
use std::fmt::{self, Display};

/// A value; empty if a column does not apply to a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The column does not apply.
    Empty,
    /// A number of 32 bits.
    U32(u32),
    /// A number of 64 bits.
    U64(u64),
    /// A number that may be negative.
    S32(i32),
    /// A number with a fraction.
    F64(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// The type's name in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Empty => "",
            Value::U32(_) => "u32",
            Value::U64(_) => "u64",
            Value::S32(_) => "s32",
            Value::F64(_) => "flt",
            Value::Text(_) => "str",
        }
    }

    /// The value in JSON; null if there is none.
    pub fn json(&self) -> Json {
        match self {
            Value::Empty => Json::Null,
            Value::U32(n) => (*n).into(),
            Value::U64(n) => (*n).into(),
            Value::S32(n) => (*n).into(),
            Value::F64(n) => (*n).into(),
            Value::Text(text) => text.as_str().into(),
        }
    }

    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::U32(n) => Some(f64::from(*n)),
            Value::U64(n) => Some(*n as f64),
            Value::S32(n) => Some(f64::from(*n)),
            Value::F64(n) => Some(*n),
            Value::Empty | Value::Text(_) => None,
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Empty => Ok(()),
            Value::U32(n) => n.fmt(f),
            Value::U64(n) => n.fmt(f),
            Value::S32(n) => n.fmt(f),
            // None of these is measured more finely than microseconds.
            Value::F64(n) => ((n * 1e6).round() / 1e6).fmt(f),
            Value::Text(text) => text.fmt(f),
        }
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Value {
        Value::U32(n)
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::U64(n)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Empty, Into::into)
    }
}
