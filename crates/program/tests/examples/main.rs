//! The programs of `examples/dvd`, compiled as their users compile them, and what they say of commands.

mod commands;
mod compilers;
mod decoded;
mod judging;
mod keeping;
mod timed;
