//! Thin, safe wrappers of the system calls that the standard library and rustix leave out.

mod account;
mod clock;
mod datagram;
mod files;
mod interface;
mod memory;
mod process;
mod signal;
mod socket;
mod sockopt;
mod spare;
mod stack;
pub mod tun;

pub use account::{Group, User, group, user};
pub use clock::local_offset;
pub use datagram::{SEGMENTS_MAX, send_segments};
pub use files::{read_at_most, read_file};
pub use interface::{Interface, PacketSocket};
pub use memory::{Allocator, MemoryGauge, MemoryRoom, free_bytes, has_reserve, keep_reserve, poison};
pub use process::{
    Forked, Silence, chroot, confine, drop_to, exec, fork, is_root, kill, new_session, reap, unblock_signals,
};
pub use signal::{Signal, Signals};
pub use socket::{adopt, adopt_listener, inheritable};
pub use sockopt::{
    forget_on_close, mark_packets, mark_packets_of, namespace_of, set_bind_address_no_port, set_defer_accept,
    set_fast_open, tcp_info, unsent,
};
pub use spare::Spares;
pub use stack::{install_stack_capture, return_addresses, thread_cpu_time, thread_id};
