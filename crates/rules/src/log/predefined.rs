//! The formats of proxies without one of their own.

use super::{CLF, DEFAULT_HTTP, DEFAULT_TCP, HTTP, HTTPS, LogFormat, TCP};
use crate::problem::Problem;
use penstock_config::model::{LogFormat as LogOption, Mode, Proxy};
use std::{collections::HashMap, sync::Arc};

/// Those that were compiled, by their text. All proxies with the same share it: of generated sections there are thousands.
#[derive(Default)]
pub(crate) struct Predefined(HashMap<&'static str, Arc<LogFormat>>);

impl Predefined {
    /// That of a proxy. The first one with it has it compiled.
    pub fn of(&mut self, proxy: &Proxy, compile: impl FnOnce(&str) -> Result<LogFormat, Problem>) -> Arc<LogFormat> {
        let text = match (proxy.options.log, proxy.mode) {
            (LogOption::Tcp, _) => TCP,
            (LogOption::Http, _) => HTTP,
            (LogOption::HttpClf, _) => CLF,
            (LogOption::Https, _) => HTTPS,
            (LogOption::Default, Mode::Http) => DEFAULT_HTTP,
            (LogOption::Default, Mode::Tcp) => DEFAULT_TCP,
        };
        let compiled = || Arc::new(compile(text).expect("the predefined formats are well formed"));
        Arc::clone(self.0.entry(text).or_insert_with(compiled))
    }
}
