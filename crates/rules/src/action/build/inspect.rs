//! `service-chain`: the services that a message passes.

use super::Build;
use crate::{action::Action, hint, kind::Kind};
use penstock_config::model::{Mode, ServiceMode};

impl Build<'_, '_, '_> {
    pub(crate) fn inspect(&mut self) -> Option<Action> {
        let word = self.next("the name of a service-chain")?;
        let config = self.linker.config;
        let chains = &config.service_chains;
        let Some(place) = chains.iter().position(|chain| chain.name == word.text) else {
            let hint = hint::nearest(&word.text, chains.iter().map(|chain| chain.name.as_str()));
            self.error(word.span, format!("there is no service-chain '{}'", word.text), hint);
            return None;
        };
        if self.kind == Kind::TcpContent {
            let section = self.scope.proxy.and_then(|id| config.proxies.get(id));
            if section.is_some_and(|proxy| proxy.mode != Mode::Tcp) {
                let hint = "write 'http-request service-chain'".to_owned();
                self.error(self.word.span, "this section is in mode http".to_owned(), Some(hint));
                return None;
            }
            let takes_bytes = |name: &str| {
                let services = config.proxies.iter().filter(|proxy| proxy.name == name);
                services
                    .filter_map(|proxy| proxy.service.as_ref())
                    .all(|found| matches!(found.mode, Some(ServiceMode::Tap | ServiceMode::Tcp)))
            };
            if let Some(step) = chains[place].steps.iter().find(|step| !takes_bytes(&step.service.text)) {
                let message = format!("the service '{}' of this chain inspects messages of HTTP", step.service.text);
                let hint =
                    "a connection in mode tcp passes services in mode tcp, and those in mode tap get a copy".to_owned();
                self.error(word.span, message, Some(hint));
                return None;
            }
        }
        Some(Action::Inspect(place, word.text.as_str().into()))
    }
}
