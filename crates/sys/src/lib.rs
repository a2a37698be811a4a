//! Thin, safe wrappers of the system calls that the standard library and rustix leave out.
