//! Public-key arithmetic on eight lanes at a time.
