//! Chains of services that inspect messages.

use crate::{
    acl::{Acls, Condition},
    compile::Compiler,
    keyword::Places,
    link::{Linker, Scope},
    words::Words,
};
use penstock_config::{
    Config, Diagnostics,
    model::{ChainStep, ProxyId, ServiceChain, ServiceMode},
};
use std::sync::Arc;

/// A `service-chain`, ready to be used.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The chain's name.
    pub name: Arc<str>,
    /// The services that a message passes, in order.
    pub steps: Vec<ChainLink>,
}

/// A service in a chain.
#[derive(Clone, Debug)]
pub struct ChainLink {
    /// The service.
    pub service: ProxyId,
    /// The condition under which the service inspects a message.
    pub condition: Condition,
    /// Whether the condition looks at the response: then it is evaluated on that, and the service does not see the request.
    pub on_response: bool,
    /// Whether the service gets a copy, and inspects nothing.
    pub is_tap: bool,
    /// Whether it is a device that the request passes through, on its way to the rest of the chain.
    pub is_inline: bool,
}

impl Compiler<'_> {
    /// Compiles the chains, in the order of the configuration.
    pub fn chains(&mut self) -> Vec<Chain> {
        let (linker, diagnostics) = self.parts();
        let config = linker.config;
        config.service_chains.iter().map(|chain| compile(chain, linker, diagnostics)).collect()
    }
}

fn compile(chain: &ServiceChain, linker: &mut Linker<'_>, diagnostics: &mut Diagnostics) -> Chain {
    let mut tap = None;
    for step in &chain.steps {
        let is_tap = mode_of(linker.config, step) == Some(ServiceMode::Tap);
        if let (false, Some(tap)) = (is_tap, tap) {
            diagnostics
                .error(
                    step.service.span,
                    format!("'{}' comes after '{tap}', which copies what leaves the chain", step.service.text),
                )
                .hint("write the services in mode tap last");
        }
        tap = tap.or(is_tap.then_some(step.service.text.as_str()));
    }
    let steps = chain.steps.iter().filter_map(|step| compile_step(step, linker, diagnostics)).collect();
    Chain { name: chain.name.as_str().into(), steps }
}

/// The mode of a step's service.
fn mode_of(config: &Config, step: &ChainStep) -> Option<ServiceMode> {
    let mut services = config.proxies.iter().filter(|proxy| proxy.name == step.service.text);
    services.find_map(|proxy| proxy.service.as_ref())?.mode
}

fn compile_step(step: &ChainStep, linker: &mut Linker<'_>, diagnostics: &mut Diagnostics) -> Option<ChainLink> {
    let config = linker.config;
    // One that does not exist has been reported where references are checked.
    let is_meant = |proxy: &penstock_config::model::Proxy| proxy.service.is_some() && proxy.name == step.service.text;
    let (service, proxy) = config.proxies.entries().find(|(_, proxy)| is_meant(proxy))?;
    let span = step.condition.words.first().map_or(step.service.span, |word| word.span);
    linker.line = span;
    let scope = Scope { proxy: None, place: Places::ALWAYS };
    let condition = linker.condition(&mut Words::new(&step.condition), &mut Acls::default(), scope, diagnostics)?;
    let is_tap = mode_of(config, step) == Some(ServiceMode::Tap);
    let on_response = !condition.is_known_at(Places::REQUEST);
    if on_response && is_tap {
        diagnostics
            .error(
                span,
                format!("this condition looks at the response, but the copy for '{}' begins before", step.service.text),
            )
            .hint("use what is known of the request");
        return None;
    }
    if on_response {
        let inspects_responses = proxy.service.as_ref().is_some_and(|service| service.respmod.is_some());
        if !condition.is_known_at(Places::RESPONSE) {
            diagnostics
                .error(span, "this condition can be evaluated neither on the request nor on the response")
                .hint("keep what is known of the request in a variable: 'http-request set-var(txn.NAME) ...'");
            return None;
        }
        if !inspects_responses {
            diagnostics
                .error(
                    span,
                    format!("this condition looks at the response, but '{}' inspects requests", step.service.text),
                )
                .hint(match mode_of(config, step) {
                    Some(ServiceMode::Http | ServiceMode::Tcp) => "use what is known of the request",
                    _ => "add 'respmod PATH' to the service, or use what is known of the request",
                });
            return None;
        }
    }
    let is_inline = matches!(mode_of(config, step), Some(ServiceMode::Http | ServiceMode::Tcp));
    Some(ChainLink { service, condition, on_response, is_tap, is_inline })
}
