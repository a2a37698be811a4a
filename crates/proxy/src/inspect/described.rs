//! What services have said about themselves, as each worker knows it.

use penstock_config::model::ProxyId;
use penstock_icap::{IcapMethod, ServiceOptions};
use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};
use tokio::time::Instant;

/// The answers to OPTIONS, by service and by what it is to inspect.
#[derive(Default)]
pub(crate) struct Described(RefCell<HashMap<(ProxyId, IcapMethod), Known>>);

struct Known {
    options: Rc<ServiceOptions>,
    until: Instant,
}

/// How long an answer holds that does not say so, and at most.
const HOLDS: Duration = Duration::from_secs(3600);

impl Described {
    pub fn of(&self, service: ProxyId, method: IcapMethod, now: Instant) -> Option<Rc<ServiceOptions>> {
        let all = self.0.borrow();
        all.get(&(service, method)).filter(|known| now < known.until).map(|known| known.options.clone())
    }
    pub fn learn(
        &self,
        service: ProxyId,
        method: IcapMethod,
        options: ServiceOptions,
        now: Instant,
    ) -> Rc<ServiceOptions> {
        let until = now + options.ttl.unwrap_or(HOLDS).min(HOLDS);
        let options = Rc::new(options);
        self.0.borrow_mut().insert((service, method), Known { options: options.clone(), until });
        options
    }
    /// Forgets what a service has said, because its answers have another ISTag now.
    pub fn forget(&self, service: ProxyId, method: IcapMethod) {
        self.0.borrow_mut().remove(&(service, method));
    }
}
