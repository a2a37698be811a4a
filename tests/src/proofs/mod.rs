//! What the tables claim, and the tests that show it. `tests/proofs.tsv` names a scenario or a test for every row that
//! says implemented; this module compares it with the tables, and takes each word out of its scenario to see that the
//! outcome depends on it.

mod mutate;
mod mutation;
mod rows;
mod table;

pub use mutate::{search, verify};
pub use mutation::mutants;
pub use rows::{Kind, Row, all};
pub use table::{How, Proof, check, read, write};
