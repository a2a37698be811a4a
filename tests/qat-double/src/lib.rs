//! Stands in for libqat, libusdm and a QuickAssist device in tests.
//!
//! As a shared library it has the symbols that are looked for in those libraries, written against their public
//! interface: instances with a ring each, requests that are answered only when polled, real arithmetic (aws-lc's) and compression
//! (zlib-rs), a model
//! of service times, and faults on command. It proves order of calls, lifetimes of buffers, back-pressure, deadlines,
//! verification and routing; it proves nothing about speed, and every figure from it must say whose it is.
//!
//! For the tests that load it, [`Double`] puts a copy of it into a directory of its own, where a file commands it and
//! another tells what it saw. Each copy has its own state.

mod arithmetic;
mod commands;
mod deflate;
mod device;
mod exports;
mod handle;
mod layout;

pub use handle::Double;
