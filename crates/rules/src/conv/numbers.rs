//! Arithmetic and bit operations on signed 64-bit integers. Overflow saturates, as in HAProxy.

use super::spec::{ConvSpec, conv, int_arg};
use crate::{
    context::Context,
    keyword::{Arg, ArgKind, ArgSpec, arg},
    value::{
        Type::{Bool, Int},
        Value,
    },
};

const VALUE: &[ArgSpec] = &[arg("value", ArgKind::IntOrVar)];

pub(super) const TABLE: &[ConvSpec] = &[
    conv("add", VALUE, Int, Int, "Adds a number.", |c, v, a| binary(c, &v, a, i64::saturating_add)),
    conv("and", VALUE, Int, Int, "Bitwise and.", |c, v, a| binary(c, &v, a, |x, y| x & y)),
    conv("bool", &[], Int, Bool, "False for 0, true for others.", |_, v, _| Some(Value::Bool(v.to_int()? != 0))),
    conv("cpl", &[], Int, Int, "Flips all bits.", |_, v, _| Some(Value::Int(!v.to_int()?))),
    conv("div", VALUE, Int, Int, "Divides; by 0 it is the largest number.", |c, v, a| {
        binary(c, &v, a, |x, y| if y == 0 { i64::MAX } else { x.saturating_div(y) })
    }),
    conv("even", &[], Int, Bool, "Whether it is even.", |_, v, _| Some(Value::Bool(v.to_int()? & 1 == 0))),
    conv("mod", VALUE, Int, Int, "Remainder; by 0 it is 0.", |c, v, a| {
        binary(c, &v, a, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) })
    }),
    conv("mul", VALUE, Int, Int, "Multiplies.", |c, v, a| binary(c, &v, a, i64::saturating_mul)),
    conv("neg", &[], Int, Int, "Changes the sign.", |_, v, _| Some(Value::Int(v.to_int()?.saturating_neg()))),
    conv("not", &[], Int, Bool, "True for 0, false for others.", |_, v, _| Some(Value::Bool(v.to_int()? == 0))),
    conv("odd", &[], Int, Bool, "Whether it is odd.", |_, v, _| Some(Value::Bool(v.to_int()? & 1 == 1))),
    conv("or", VALUE, Int, Int, "Bitwise or.", |c, v, a| binary(c, &v, a, |x, y| x | y)),
    conv("sub", VALUE, Int, Int, "Subtracts.", |c, v, a| binary(c, &v, a, i64::saturating_sub)),
    conv("xor", VALUE, Int, Int, "Bitwise exclusive or.", |c, v, a| binary(c, &v, a, |x, y| x ^ y)),
];

fn binary<'c>(ctx: &Context<'_>, value: &Value<'c>, args: &[Arg], f: fn(i64, i64) -> i64) -> Option<Value<'c>> {
    Some(Value::Int(f(value.to_int()?, int_arg(ctx, args, 0)?)))
}
