//! The `sanwire` program.
fn main() {}
