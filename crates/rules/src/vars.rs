//! Variables: named values that last as long as a process, a session, a transaction, a request, a response or a health
//! check.

use crate::{
    context::{Context, Phase},
    value::Value,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

/// How long a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `proc.`: shared by all workers until the process ends.
    Proc,
    /// `sess.`: the client's connection.
    Sess,
    /// `txn.`: a request and its response.
    Txn,
    /// `req.`: until the response begins.
    Req,
    /// `res.`: while the response is processed.
    Res,
    /// `check.`: one health check. Elsewhere it has no value and cannot be set.
    Check,
}

/// Names become numbers when the configuration is compiled.
pub type VarId = u32;

/// A variable of the process.
#[derive(Debug, Default)]
pub struct ProcVar(RwLock<Option<Value<'static>>>);

/// As many variables of the process may there be for an agent to create another.
const FORCED_MAX: usize = 4_096;
/// The longest name of such a one, with its scope and prefix.
const FORCED_NAME_MAX: usize = 255;

/// The variables of the process by their names: those that the configuration names, and those that were set since.
#[derive(Debug, Default)]
pub struct Variables(Mutex<BTreeMap<String, VarRef>>);

impl Variables {
    /// The value of one; `None` where it has none.
    pub fn value(&self, name: &str) -> Option<Value<'static>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name)?.shared.as_ref()?.0.read().ok()?.clone()
    }

    /// One that an agent may create; there is a bound to how many it is given.
    pub(crate) fn force(&self, name: &str) -> Option<VarRef> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(var) = known.get(name) {
            return Some(var.clone());
        }
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        if known.len() >= FORCED_MAX || name.len() > FORCED_NAME_MAX || !name.bytes().all(valid) {
            return None;
        }
        // No rule names it, so that its number is never compared with another.
        let var = VarRef { scope: Scope::Proc, id: VarId::MAX, shared: Some(Arc::default()) };
        known.insert(name.to_owned(), var.clone());
        Some(var)
    }

    /// Every one that has been named.
    pub(crate) fn all(&self) -> Vec<(String, VarRef)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
    }

    /// Takes in those that a configuration or a command names.
    pub(crate) fn add(&self, named: impl Iterator<Item = (String, VarRef)>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, var) in named.filter(|(_, var)| var.scope == Scope::Proc) {
            known.entry(name).or_insert(var);
        }
    }
}

/// A variable named in a rule.
#[derive(Clone, Debug)]
pub struct VarRef {
    /// The variable's scope.
    pub scope: Scope,
    /// The variable's name, as a number.
    pub id: VarId,
    /// The storage of a variable of scope `proc`; `None` for other scopes.
    pub(crate) shared: Option<Arc<ProcVar>>,
}

impl PartialEq for VarRef {
    fn eq(&self, other: &Self) -> bool {
        self.scope == other.scope && self.id == other.id
    }
}

/// The variables of one scope. There are rarely many, so they are searched in order.
#[derive(Clone, Debug, Default)]
pub struct Store(Vec<(VarId, Value<'static>)>);

impl Store {
    /// The value, if it is set.
    pub fn get(&self, id: VarId) -> Option<&Value<'static>> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, value)| value)
    }
    /// Sets it.
    pub fn set(&mut self, id: VarId, value: Value<'static>) {
        match self.0.iter_mut().find(|(known, _)| *known == id) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((id, value)),
        }
    }
    /// Removes it.
    pub fn unset(&mut self, id: VarId) {
        self.0.retain(|(known, _)| *known != id);
    }
    /// Removes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// An assignment to be made once the evaluation that asked for it no longer borrows the variables.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) var: VarRef,
    /// `None` removes the variable.
    pub(crate) value: Option<Value<'static>>,
}

/// A condition of an assignment (`set-var(name,ifnotset)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The variable exists already.
    IfExists,
    /// The variable does not exist.
    IfNotExists,
    /// The new value is empty.
    IfEmpty,
    /// The new value is not empty.
    IfNotEmpty,
    /// The variable has a value.
    IfSet,
    /// The variable has no value.
    IfNotSet,
    /// The variable is greater than the new value.
    IfGt,
    /// The variable is less than the new value.
    IfLt,
}

impl Condition {
    /// Finds a condition by name.
    pub fn parse(name: &str) -> Option<Condition> {
        Some(match name {
            "ifexists" => Condition::IfExists,
            "ifnotexists" => Condition::IfNotExists,
            "ifempty" => Condition::IfEmpty,
            "ifnotempty" => Condition::IfNotEmpty,
            "ifset" => Condition::IfSet,
            "ifnotset" => Condition::IfNotSet,
            "ifgt" => Condition::IfGt,
            "iflt" => Condition::IfLt,
            _ => return None,
        })
    }

    /// A variable of the process exists from the start, though without a value: rules that may set it have declared it.
    fn allows(self, scope: Scope, old: Option<&Value<'_>>, new: &Value<'_>) -> bool {
        let exists = scope == Scope::Proc || old.is_some();
        let empty = new.bytes().is_some_and(<[u8]>::is_empty);
        let older = |f: fn(&i64, &i64) -> bool| match (old, new) {
            (Some(Value::Int(old)), Value::Int(new)) => f(old, new),
            _ => true,
        };
        match self {
            Condition::IfExists => exists,
            Condition::IfNotExists => !exists,
            Condition::IfSet => old.is_some(),
            Condition::IfNotSet => old.is_none(),
            Condition::IfEmpty => empty,
            Condition::IfNotEmpty => !empty,
            Condition::IfGt => older(i64::gt),
            Condition::IfLt => older(i64::lt),
        }
    }
}

impl<'a> Context<'a> {
    /// The value of a variable.
    pub fn var(&self, var: &VarRef) -> Option<Value<'_>> {
        if let Some(pending) = self.txn.pending.borrow().iter().rev().find(|a| a.var == *var) {
            return pending.value.clone();
        }
        if !self.reaches(var.scope) {
            return None;
        }
        match var.scope {
            Scope::Proc => var.shared.as_ref()?.0.read().ok()?.clone(),
            Scope::Sess => self.session.vars.get(var.id).map(Value::borrowed),
            Scope::Txn => self.txn.vars.get(var.id).map(Value::borrowed),
            Scope::Req => self.txn.req_vars.get(var.id).map(Value::borrowed),
            Scope::Res => self.txn.res_vars.get(var.id).map(Value::borrowed),
            Scope::Check => self.session.check_vars.as_ref()?.get(var.id).map(Value::borrowed),
        }
    }

    /// Whether variables of a scope exist at this moment, as in HAProxy: those of a request and its response do not in
    /// rules of the connection, and of `req` and `res` there is one at a time.
    pub(crate) fn reaches(&self, scope: Scope) -> bool {
        let served = self.phase != Phase::Before;
        match scope {
            Scope::Proc | Scope::Sess => true,
            Scope::Txn => served,
            Scope::Req => served && !self.txn.responding,
            Scope::Res => served && self.txn.responding,
            Scope::Check => self.session.check_vars.is_some(),
        }
    }

    /// Sets a variable, or removes it with `None`. Without effect on one that cannot be reached now.
    pub fn set_var(&mut self, var: &VarRef, value: Option<Value<'static>>) {
        if !self.reaches(var.scope) {
            return;
        }
        let store = match var.scope {
            Scope::Proc => {
                if let Some(Ok(mut slot)) = var.shared.as_ref().map(|shared| shared.0.write()) {
                    *slot = value;
                }
                return;
            }
            Scope::Sess => &mut self.session.vars,
            Scope::Txn => &mut self.txn.vars,
            Scope::Req => &mut self.txn.req_vars,
            Scope::Res => &mut self.txn.res_vars,
            Scope::Check => match &mut self.session.check_vars {
                Some(store) => store,
                None => return,
            },
        };
        match value {
            Some(value) => store.set(var.id, value),
            None => store.unset(var.id),
        }
    }

    /// Whether a variable can be reached, and the conditions of an assignment hold.
    pub(crate) fn may_assign(&self, var: &VarRef, conditions: &[Condition], new: &Value<'_>) -> bool {
        self.reaches(var.scope)
            && conditions.iter().all(|condition| condition.allows(var.scope, self.var(var).as_ref(), new))
    }

    /// Makes the deferred assignments of converters.
    pub fn settle(&mut self) {
        if self.txn.pending.get_mut().is_empty() {
            return;
        }
        for assignment in std::mem::take(self.txn.pending.get_mut()) {
            self.set_var(&assignment.var, assignment.value);
        }
    }
}
