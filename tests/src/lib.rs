//! Harness of the scenario tests.
