//! A study's result for people: a page that stands by itself, and the same for a terminal.

mod page;
mod placement;
mod story;
mod text;
mod view;

pub use page::page;
pub use text::text;
