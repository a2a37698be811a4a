//! Which host names are resolved for which servers.

use crate::server::ServerRef;
use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// The servers whose address is one answer, in the order of their backends.
pub(crate) struct Question {
    /// Whether the name is that of a service, whose SRV records give each server a host and a port.
    pub is_service: bool,
    pub name: String,
    pub prefers_ipv4: bool,
    pub servers: RefCell<Vec<ServerRef>>,
}

/// The questions asked on one worker, by section, name, whether it is a service's, and whether IPv4 is preferred.
pub(crate) type Questions = RefCell<HashMap<(String, String, bool, bool), Rc<Question>>>;
