//! `service-chain`: the services that inspect a message, in order.

use crate::{
    args::{Args, Parsed, Reported},
    keyword::{Keyword, SOME, Table},
    model::{ChainStep, ServiceChain},
    surroundings::Surroundings,
};

pub(crate) static TABLE: Table<ServiceChain> = Table::new(
    "service-chain",
    &[&[Keyword::<ServiceChain>::new(
        "inspect",
        SOME,
        "A service, and the condition under which it is asked",
        inspect,
    )]],
);

/// A message remembers in 64 bits which services it is due to pass.
const STEPS_MAX: usize = 64;

fn inspect(chain: &mut ServiceChain, args: &mut Args<'_>) -> Parsed {
    let service = args.word("a service's name")?.clone();
    if let Some(word) = args.peek().filter(|word| !matches!(word.text.as_str(), "if" | "unless")) {
        return args.wrong(word, format!("'{}' is not expected here", word.text), "expected 'if' or 'unless'");
    }
    if chain.steps.iter().any(|step| step.service.text == service.text) {
        return args.wrong(
            &service,
            format!("the chain '{}' has the service '{}' already", chain.name, service.text),
            "join both conditions with 'or'",
        );
    }
    if chain.steps.len() == STEPS_MAX {
        return args.wrong(&service, format!("a chain has at most {STEPS_MAX} services"), "use another chain");
    }
    let condition = args.rest();
    chain.steps.push(ChainStep { service, condition });
    Ok(())
}

/// Checks a chain at the end of its section.
pub(crate) fn end(chain: &ServiceChain, around: &mut Surroundings) -> Parsed {
    if chain.steps.is_empty() {
        around
            .diagnostics
            .error(chain.span, format!("the chain '{}' has no services", chain.name))
            .hint("add for instance 'inspect av'");
        return Err(Reported);
    }
    Ok(())
}
