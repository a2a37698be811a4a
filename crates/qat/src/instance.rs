//! One instance of a device: a pair of rings.

use crate::abi::{self, Handle, InstanceInfo};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// What an instance can be asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Capabilities {
    pub rsa: bool,
    pub ecdsa: bool,
    /// Multiples of points of P-256 and P-384.
    pub ecdh: bool,
    pub x25519: bool,
}

impl Capabilities {
    /// Whether there is any capability.
    pub fn any(self) -> bool {
        self.rsa || self.ecdsa || self.ecdh || self.x25519
    }
}

/// The health of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The instance takes requests.
    Up,
    /// The instance's device is being reset.
    Restarting,
    /// The instance's device is lost.
    Lost,
}

/// What there is to show of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The instance's name, as the library has it.
    pub name: String,
    /// The kind of the device.
    pub part: String,
    /// Number of the device it belongs to.
    pub package: u16,
    /// The NUMA node it is on, where that is known.
    pub node: Option<u32>,
    /// What the instance can be asked to do.
    pub capabilities: Capabilities,
    /// The health of the instance.
    pub health: Health,
    /// Workers that share it.
    pub workers: u32,
    /// Requests it has not answered.
    pub depth: u32,
}

/// One of the device's list, where its address is also the tag of the library's notifications.
pub struct Instance {
    pub handle: Handle,
    pub name: String,
    pub part: String,
    pub package: u16,
    pub node: Option<u32>,
    pub capabilities: Capabilities,
    pub workers: AtomicU32,
    depth: AtomicU32,
    health: AtomicU8,
    restarts: AtomicU32,
    polled: AtomicBool,
}

// SAFETY: the library's calls on an instance may come from any thread; `poll`, which is not reentrant, is kept to one at a
// time by `polled`.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    pub fn new(handle: Handle, info: &InstanceInfo, capabilities: Capabilities) -> Instance {
        // The library writes a node it does not know as all ones.
        let node = (info.node < NODES_MAX).then_some(info.node);
        Instance {
            handle,
            name: text(&info.name),
            part: text(&info.part),
            package: info.physical[0],
            node,
            capabilities,
            workers: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            health: AtomicU8::new(UP),
            restarts: AtomicU32::new(0),
            polled: AtomicBool::new(false),
        }
    }

    /// The health of the instance.
    pub fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            UP => Health::Up,
            LOST => Health::Lost,
            _ => Health::Restarting,
        }
    }

    /// Notes an event that the library reports of the instance.
    pub fn heard(&self, event: u32) {
        let health = match event {
            abi::event::RESTARTED => {
                self.restarts.fetch_add(1, Ordering::Relaxed);
                UP
            }
            abi::event::RESTARTING => DOWN,
            _ => LOST,
        };
        self.health.store(health, Ordering::Release);
    }

    /// The number of resets that the instance has come back from.
    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// The number of requests, of all workers, that the instance has not answered.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Another request is about to be given to the instance.
    pub fn begun(&self) {
        self.depth.fetch_add(1, Ordering::Relaxed);
    }

    /// A request given to the instance has been answered, or was not taken.
    pub fn finished(&self) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }

    /// Runs `poll` unless another worker is doing so: each poll finds the answers of all.
    pub fn polling(&self, poll: impl FnOnce(Handle)) {
        if !self.polled.swap(true, Ordering::Acquire) {
            poll(self.handle);
            self.polled.store(false, Ordering::Release);
        }
    }

    pub fn summary(&self) -> Summary {
        Summary {
            name: self.name.clone(),
            part: self.part.clone(),
            package: self.package,
            node: self.node,
            capabilities: self.capabilities,
            health: self.health(),
            workers: self.workers.load(Ordering::Relaxed),
            depth: self.depth(),
        }
    }
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const LOST: u8 = 2;
/// Linux' own limit is 1024.
const NODES_MAX: u32 = 1024;

/// A string in a field of fixed size.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
